// Forks and snapshots: the files of a sandbox in others.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Sandbox, fresh, inSandbox, sdk, whereThere } from './lib.mjs'

const forget = (t, sandbox) => t.after(() => sandbox.kill().catch(() => {}))

test('fork: the files are there, and from then on each its own', whereThere(async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.files.write('note', 'before')
  const [fork] = await sandbox.fork()
  if (fork instanceof Error) throw fork
  forget(t, fork)
  assert.notEqual(fork.sandboxId, sandbox.sandboxId)
  assert.equal(await fork.files.read('note'), 'before')
  await fork.files.write('note', 'after')
  assert.equal(await sandbox.files.read('note'), 'before')
}))

test('fork: several at once', whereThere(async (t) => {
  const sandbox = await inSandbox(t)
  const forks = await sandbox.fork({ count: 3, timeoutMs: 60_000 })
  for (const fork of forks) {
    if (fork instanceof Error) throw fork
    forget(t, fork)
  }
  assert.equal(new Set([sandbox, ...forks].map(({ sandboxId }) => sandboxId)).size, 4)
}))

test('fork of what is not there', whereThere(async () => {
  await assert.rejects(Sandbox.fork('i00000000000000000000'), (error) => {
    if (/^501\b/.test(error.message)) throw error
    return error instanceof sdk.SandboxNotFoundError
  })
}))

test('a snapshot is a template for others', whereThere(async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.files.write('note', 'kept')
  const { snapshotId } = await sandbox.createSnapshot()
  t.after(() => Sandbox.deleteSnapshot(snapshotId))
  await sandbox.files.write('note', 'later')
  const made = await Promise.all([Sandbox.create(snapshotId, { timeoutMs: 60_000 }), Sandbox.create(snapshotId, { timeoutMs: 60_000 })])
  for (const one of made) forget(t, one)
  for (const one of made) assert.equal(await one.files.read('note'), 'kept')
  await made[0].files.write('note', 'of one')
  assert.equal(await made[1].files.read('note'), 'kept')
}))

test('snapshots: names, lists, removal', whereThere(async (t) => {
  const sandbox = await inSandbox(t)
  const name = fresh('snap')
  const made = await sandbox.createSnapshot({ name })
  assert.match(made.snapshotId, new RegExp(`(^|/)${name}(:default)?$`))
  const mine = await sandbox.listSnapshots().nextItems()
  assert.deepEqual(mine.map(({ snapshotId }) => snapshotId), [made.snapshotId])
  const other = await inSandbox(t)
  assert.deepEqual(await other.listSnapshots().nextItems(), [])
  assert.equal(await Sandbox.deleteSnapshot(made.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(made.snapshotId), false)
}))
