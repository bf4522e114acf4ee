// The control plane: a sandbox's life from create to kill, and what can be asked about it.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Sandbox, fresh, inSandbox, sdk, template, until, whereThere } from './lib.mjs'

async function collect(paginator) {
  const found = []
  while (paginator.hasNext) found.push(...(await paginator.nextItems()))
  return found
}
const ids = (sandboxes) => sandboxes.map((sandbox) => sandbox.sandboxId)

test('create: the sandbox runs when the call returns', async (t) => {
  const sandbox = await inSandbox(t)
  assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
  assert.equal(await sandbox.isRunning(), true)
  assert.equal((await sandbox.commands.run('echo here')).stdout, 'here\n')
})

test('create: template and options in one object', async (t) => {
  const sandbox = await Sandbox.create({ template, timeoutMs: 60_000 })
  t.after(() => sandbox.kill())
  assert.equal(await sandbox.isRunning(), true)
})

test('create: variables are those of every command', async (t) => {
  const sandbox = await inSandbox(t, { envs: { GREETING: 'good day', EMPTY: '' } })
  const { stdout } = await sandbox.commands.run('echo "$GREETING/${EMPTY-unset}/$E2B_SANDBOX/$E2B_SANDBOX_ID"')
  assert.equal(stdout, `good day//true/${sandbox.sandboxId}\n`)
})

test('create: a template that is not there', async () => {
  await assert.rejects(Sandbox.create('no-such-template-here'), (error) => {
    assert.ok(error instanceof sdk.SandboxError, String(error))
    assert.match(error.message, /404/)
    return true
  })
})

test('create: allowed domains without a denial of the rest are refused', async () => {
  await assert.rejects(Sandbox.create(template, { network: { allowOut: ['example.com'] } }), (error) => {
    assert.match(error.message, /must include 'ALL_TRAFFIC' in deny out/)
    return true
  })
})

test('create: eight at the same time', async (t) => {
  const made = await Promise.all(Array.from({ length: 8 }, () => inSandbox(t)))
  assert.equal(new Set(ids(made)).size, 8)
  const said = await Promise.all(made.map((sandbox) => sandbox.commands.run('echo $E2B_SANDBOX_ID')))
  assert.deepEqual(said.map((result) => result.stdout.trim()), ids(made))
})

test('a key that is nobody\'s', async () => {
  await assert.rejects(Sandbox.create(template, { apiKey: `e2b_${'f'.repeat(40)}` }), sdk.AuthenticationError)
})

test('getInfo tells what was asked for', async (t) => {
  const metadata = { purpose: 'a test', 'odd key': 'ü & = ?' }
  const sandbox = await inSandbox(t, { metadata, timeoutMs: 90_000 })
  const info = await sandbox.getInfo()
  assert.equal(info.sandboxId, sandbox.sandboxId)
  assert.deepEqual(info.metadata, metadata)
  assert.equal(info.state, 'running')
  assert.ok(info.templateId)
  assert.ok(info.cpuCount >= 1 && info.memoryMB >= 1, JSON.stringify(info))
  assert.match(info.envdVersion, /^\d+\.\d+\.\d+$/)
  const lifetime = info.endAt - info.startedAt
  assert.ok(Math.abs(lifetime - 90_000) < 5_000, `lives ${lifetime} ms`)
  assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })
})

test('getInfo: a sandbox that is not there', async () => {
  await assert.rejects(Sandbox.getInfo('i00000000000000000000'), sdk.SandboxNotFoundError)
})

test('setTimeout moves the end both ways', async (t) => {
  const sandbox = await inSandbox(t, { timeoutMs: 60_000 })
  for (const wanted of [600_000, 30_000]) {
    await sandbox.setTimeout(wanted)
    const left = (await sandbox.getInfo()).endAt - Date.now()
    assert.ok(Math.abs(left - wanted) < 5_000, `${left} ms are left of ${wanted}`)
  }
})

test('setTimeout: a sandbox that is not there', async () => {
  await assert.rejects(Sandbox.setTimeout('i00000000000000000000', 1000), sdk.SandboxNotFoundError)
})

test('a sandbox ends at its time', async (t) => {
  const sandbox = await inSandbox(t, { timeoutMs: 2_000 })
  await until('it ended', async () => !(await sandbox.isRunning()))
  await assert.rejects(sandbox.getInfo(), sdk.SandboxNotFoundError)
  await assert.rejects(sandbox.commands.run('echo late'), sdk.SandboxNotFoundError)
  await assert.rejects(sandbox.files.exists('/tmp'), sdk.TimeoutError)
})

test('setTimeout 0 ends it at once', async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.setTimeout(0)
  await until('it ended', async () => !(await sandbox.isRunning()), 5)
})

test('kill is true once', async (t) => {
  const sandbox = await inSandbox(t)
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  await assert.rejects(Sandbox.connect(sandbox.sandboxId), sdk.NotFoundError)
})

test('kill during a command: its caller learns it at once', async (t) => {
  const sandbox = await inSandbox(t)
  const running = sandbox.commands.run('sleep 60')
  running.catch(() => {})
  await until('the command runs', async () => (await sandbox.commands.list()).length > 0)
  const began = Date.now()
  await sandbox.kill()
  await assert.rejects(running, sdk.TimeoutError)
  assert.ok(Date.now() - began < 10_000)
})

test('connect from elsewhere', async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.files.write('note', 'left here')
  const other = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await other.files.read('note'), 'left here')
  assert.equal((await other.commands.run('cat note')).stdout, 'left here')
})

test('connect never shortens the time', async (t) => {
  const sandbox = await inSandbox(t, { timeoutMs: 300_000 })
  const before = (await sandbox.getInfo()).endAt
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 })
  assert.ok((await sandbox.getInfo()).endAt >= before)
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 900_000 })
  const left = (await sandbox.getInfo()).endAt - Date.now()
  assert.ok(Math.abs(left - 900_000) < 5_000, `${left} ms are left`)
})

test('list by metadata, page by page, in both orders', async (t) => {
  const metadata = { group: fresh('group'), text: 'a b&c=ü/%' }
  const made = []
  for (let number = 0; number < 3; number += 1) made.push(await inSandbox(t, { metadata }))
  const query = { metadata }

  const pages = Sandbox.list({ query, limit: 2 })
  const first = await pages.nextItems()
  assert.equal(first.length, 2)
  assert.equal(pages.hasNext, true)
  assert.ok(pages.nextToken)
  const rest = await pages.nextItems()
  assert.equal(pages.hasNext, false)
  assert.deepEqual(ids([...first, ...rest]), ids(made).reverse())
  assert.deepEqual(first[0].metadata, metadata)

  const again = Sandbox.list({ query, limit: 2, nextToken: pages.nextToken ?? undefined })
  assert.ok((await again.nextItems()).length > 0)

  assert.deepEqual(ids(await collect(Sandbox.list({ query, order: 'asc', limit: 1 }))), ids(made))
  assert.deepEqual(await collect(Sandbox.list({ query: { metadata: { group: 'nobody' } } })), [])
})

test('list by state, start and template', async (t) => {
  const metadata = { group: fresh('group') }
  const early = await inSandbox(t, { metadata })
  const late = await inSandbox(t, { metadata })
  const startedAfter = (await late.getInfo()).startedAt
  assert.deepEqual(ids(await collect(Sandbox.list({ query: { metadata, startedAfter } }))), [late.sandboxId])
  assert.deepEqual(ids(await collect(Sandbox.list({ query: { metadata, template } }))), ids([late, early]))
  assert.deepEqual(await collect(Sandbox.list({ query: { metadata, template: 'no-such-template' } })), [])
  await early.pause()
  assert.deepEqual(ids(await collect(Sandbox.list({ query: { metadata, state: ['paused'] } }))), [early.sandboxId])
  assert.deepEqual(ids(await collect(Sandbox.list({ query: { metadata, state: ['running'] } }))), [late.sandboxId])
  assert.deepEqual(ids(await collect(Sandbox.list({ query: { metadata } }))), ids([late, early]))
})

test('list: a token that is none', async () => {
  await assert.rejects(Sandbox.list({ nextToken: 'not-a-token' }).nextItems(), /400/)
})

test('list: a sandbox that ended is gone from it', async (t) => {
  const metadata = { group: fresh('group') }
  const sandbox = await inSandbox(t, { metadata })
  await sandbox.kill()
  assert.deepEqual(await collect(Sandbox.list({ query: { metadata } })), [])
})

test('getMetrics', async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.commands.run('head -c 20000000 /dev/zero > zeros')
  const [sample] = await until('a sample', async () => {
    const samples = await sandbox.getMetrics()
    return samples.length > 0 && samples
  }, 30)
  assert.ok(Math.abs(sample.timestamp - Date.now()) < 60_000, String(sample.timestamp))
  assert.ok(sample.cpuCount >= 1 && sample.cpuUsedPct >= 0)
  assert.ok(sample.memTotal > 0 && sample.memUsed >= 0 && sample.memUsed <= sample.memTotal, JSON.stringify(sample))
  assert.ok(sample.diskTotal > 0 && sample.diskUsed >= 0, JSON.stringify(sample))
  const long = 3_600_000
  assert.deepEqual(await sandbox.getMetrics({ start: new Date(Date.now() - 2 * long), end: new Date(Date.now() - long) }), [])
  await assert.rejects(Sandbox.getMetrics('i00000000000000000000'), sdk.SandboxNotFoundError)
})

test('pause and connect: processes and files are as they were', async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.files.write('note', 'kept')
  const handle = await sandbox.commands.run('sleep 300', { background: true })
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.pause(), false)
  assert.equal((await Sandbox.getInfo(sandbox.sandboxId)).state, 'paused')
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 120_000 })
  assert.equal(again.sandboxId, sandbox.sandboxId)
  assert.equal((await again.getInfo()).state, 'running')
  assert.equal(await again.files.read('note'), 'kept')
  await again.commands.run(`kill -0 ${handle.pid}`)
  assert.ok((await again.commands.list()).some((process) => process.pid === handle.pid))
})

test('a paused sandbox does not run', async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.pause()
  assert.equal(await sandbox.isRunning(), false)
  await assert.rejects(sandbox.commands.run('echo no'), sdk.SandboxNotFoundError)
  assert.equal(await sandbox.kill(), true)
})

test('pause: a sandbox that is not there', async () => {
  await assert.rejects(Sandbox.pause('i00000000000000000000'), sdk.SandboxNotFoundError)
})

test('pause without memory: files stay, processes do not, and it boots anew', whereThere(async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.files.write('note', 'kept')
  await sandbox.commands.run('sleep 300', { background: true })
  const boot = await sandbox.files.read('/proc/sys/kernel/random/boot_id')
  await sandbox.pause({ keepMemory: false })
  const again = await sandbox.connect({ timeoutMs: 120_000 })
  assert.equal(await again.files.read('note'), 'kept')
  assert.deepEqual(await again.commands.list(), [])
  assert.notEqual(await again.files.read('/proc/sys/kernel/random/boot_id'), boot)
}))

test('lifecycle: paused at its time instead of killed', async (t) => {
  const sandbox = await inSandbox(t, { timeoutMs: 2_000, lifecycle: { onTimeout: 'pause' } })
  await sandbox.files.write('note', 'kept')
  await until('it is paused', async () => (await sandbox.getInfo()).state === 'paused')
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
  assert.equal(await again.files.read('note'), 'kept')
  assert.equal((await again.getInfo()).lifecycle.onTimeout, 'pause')
})

test('lifecycle: a request wakes it', async (t) => {
  const lifecycle = { onTimeout: 'pause', autoResume: true }
  const sandbox = await inSandbox(t, { timeoutMs: 60_000, lifecycle })
  await sandbox.files.write('note', 'kept')
  await sandbox.pause()
  assert.equal((await sandbox.commands.run('cat note')).stdout, 'kept')
  const info = await sandbox.getInfo()
  assert.equal(info.state, 'running')
  assert.deepEqual(info.lifecycle, lifecycle)
})

test('updateNetwork', async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'] })
  await sandbox.updateNetwork({})
  await assert.rejects(sandbox.updateNetwork({ denyOut: ['example.com'] }), /400/)
  await assert.rejects(Sandbox.updateNetwork('i00000000000000000000', {}), sdk.SandboxNotFoundError)
})

test('getInfo tells the network\'s rules', { todo: 'the server keeps no rules: its sandboxes have no way out' }, async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'] })
  assert.deepEqual((await sandbox.getInfo()).network?.denyOut, ['0.0.0.0/0'])
})

test('two sandboxes share nothing', async (t) => {
  const [one, other] = await Promise.all([inSandbox(t), inSandbox(t)])
  await one.files.write('/tmp/mine', 'of one')
  assert.equal(await other.files.exists('/tmp/mine'), false)
  const boot = (sandbox) => sandbox.files.read('/proc/sys/kernel/random/boot_id')
  assert.notEqual(await boot(one), await boot(other))
})
