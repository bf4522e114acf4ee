// Watching a folder.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { fresh, inSandbox, sdk, shareSandbox, until } from './lib.mjs'

const shared = shareSandbox()
const files = () => shared.sandbox.files
const run = (command) => shared.sandbox.commands.run(command)

// A new folder that is watched: what happened in it is in `events`, as "type name".
async function watched(options) {
  const top = fresh('watched')
  await files().makeDir(top)
  const events = []
  const handle = await files().watchDir(top, (event) => { events.push(event) }, options)
  const saw = (type, name) => until(`${type} ${name}`, () => events.find((event) => event.type === type && event.name === name))
  return { top, handle, events, saw }
}

test('every kind of event', async () => {
  const { top, handle, saw } = await watched()
  await files().write(`${top}/file`, 'text')
  await saw('create', 'file')
  await saw('write', 'file')
  await run(`chmod 600 ${top}/file`)
  await saw('chmod', 'file')
  await files().rename(`${top}/file`, `${top}/moved`)
  await saw('rename', 'file')
  await saw('create', 'moved')
  await files().remove(`${top}/moved`)
  await saw('remove', 'moved')
  await handle.stop()
})

test('folders below, those made later too', async () => {
  const { top, handle, saw } = await watched({ recursive: true })
  await files().makeDir(`${top}/a`)
  await saw('create', 'a')
  await run(`mkdir -p ${top}/a/b/c && echo x > ${top}/a/b/c/file`)
  await saw('create', 'a/b/c/file')
  await run(`echo y >> ${top}/a/b/c/file`)
  await saw('write', 'a/b/c/file')
  await handle.stop()
})

test('not what is below, where it was not asked for', async () => {
  const { top, handle, events, saw } = await watched()
  await run(`mkdir ${top}/a; echo x > ${top}/a/hidden; echo x > ${top}/shown`)
  await saw('create', 'shown')
  await handle.stop()
  assert.ok(!events.some(({ name }) => name.includes('hidden')), JSON.stringify(events))
})

test('with what the file is', async () => {
  const { top, handle, saw } = await watched({ includeEntry: true })
  await run(`echo four > ${top}/file`)
  const event = await saw('write', 'file')
  assert.equal(event.entry?.path, `/home/user/${top}/file`)
  assert.equal(event.entry.type, 'file')
  await handle.stop()
})

test('after stop nothing comes', async () => {
  const { top, handle, events } = await watched()
  await handle.stop()
  const second = await watched()
  await run(`echo x > ${top}/file; echo x > ${second.top}/file`)
  await second.saw('create', 'file')
  await second.handle.stop()
  assert.deepEqual(events, [])
})

test('what is not there, or no folder', async () => {
  await assert.rejects(files().watchDir('not-here', () => {}), sdk.FileNotFoundError)
  await assert.rejects(files().watchDir('/etc/passwd', () => {}), sdk.InvalidArgumentError)
})

test('the end of the sandbox ends the watch', async (t) => {
  const sandbox = await inSandbox(t)
  const ended = new Promise((resolve) => {
    sandbox.files.watchDir('/tmp', () => {}, { onExit: resolve, timeoutMs: 0 }).then(() => sandbox.kill(), resolve)
  })
  assert.ok((await ended) instanceof sdk.TimeoutError)
})
