// Templates: built from steps, named, and used.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { test } from 'node:test'

import { Sandbox, fresh, sdk, template as base, whereThere } from './lib.mjs'

const { Template } = sdk
const small = { cpuCount: 1, memoryMB: 512 }

async function sandboxOf(t, name) {
  const sandbox = await Sandbox.create(name, { timeoutMs: 60_000 })
  t.after(() => sandbox.kill())
  return sandbox
}

test('steps: a command, variables, a folder, a file of ours', whereThere(async (t) => {
  const context = fs.mkdtempSync(path.join(os.tmpdir(), 'template-'))
  t.after(() => fs.rmSync(context, { recursive: true }))
  fs.writeFileSync(path.join(context, 'copied.txt'), 'from outside')
  const logs = []
  const name = fresh('steps')
  const steps = Template({ fileContextPath: context }).fromTemplate(base)
    .setEnvs({ GREETING: 'hello' }).runCmd('echo "$GREETING" > /tmp/said').copy('copied.txt', '/tmp/').setWorkdir('/tmp')
  await Template.build(steps, name, { ...small, onBuildLogs: (entry) => logs.push(entry.message) })
  const sandbox = await sandboxOf(t, name)
  assert.equal((await sandbox.commands.run('cat /tmp/said /tmp/copied.txt; pwd; echo $GREETING')).stdout, 'hello\nfrom outside/tmp\nhello\n')
  assert.ok(logs.length > 0)
  assert.equal((await sandbox.getInfo()).name, name)
}))

test('a step that fails tells which and why', whereThere(async () => {
  const steps = Template().fromTemplate(base).runCmd('echo reason >&2; exit 3')
  await assert.rejects(Template.build(steps, fresh('fails'), small), (error) => {
    if (/^501\b/.test(error.message)) throw error
    assert.ok(error instanceof sdk.BuildError, String(error))
    assert.match(error.message, /failed to run command .*exit status 3/)
    return true
  })
}))

test('what it starts runs in its sandboxes', whereThere(async (t) => {
  const name = fresh('starts')
  const steps = Template().fromTemplate(base).setStartCmd('sleep 3600', 'pgrep -x sleep')
  await Template.build(steps, name, small)
  const sandbox = await sandboxOf(t, name)
  await sandbox.commands.run('pgrep -x sleep')
}))

test('exists', whereThere(async () => {
  assert.equal(await Template.exists(base), true)
  assert.equal(await Template.exists(fresh('not-there')), false)
}))
