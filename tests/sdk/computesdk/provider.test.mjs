// ComputeSDK's provider for E2B, as its users have it: what it calls of E2B's SDK works on this server.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { e2b } from '@computesdk/e2b'
import { compute } from 'computesdk'

const provider = e2b({ apiKey: process.env.E2B_API_KEY })
compute.setConfig({ provider })

const made = async (t, options = {}) => {
  const sandbox = await compute.sandbox.create({ timeout: 120_000, ...options })
  t.after(() => sandbox.destroy().catch(() => {}))
  return sandbox
}

test('commands tell their output and status', async (t) => {
  const sandbox = await made(t)
  const good = await sandbox.runCommand('echo out; echo err >&2')
  assert.deepEqual([good.exitCode, good.stdout, good.stderr], [0, 'out\n', 'err\n'])
  assert.equal((await sandbox.runCommand('exit 3')).exitCode, 3)
  assert.equal((await sandbox.runCommand('printenv A', { env: { A: 'b' } })).stdout, 'b\n')
  assert.equal((await sandbox.runCommand('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
})

test('files', async (t) => {
  const { filesystem } = await made(t)
  await filesystem.mkdir('/tmp/folder')
  await filesystem.writeFile('/tmp/folder/note', 'text')
  assert.equal(await filesystem.readFile('/tmp/folder/note'), 'text')
  assert.deepEqual((await filesystem.readdir('/tmp/folder')).map(({ name }) => name), ['note'])
  assert.equal(await filesystem.exists('/tmp/folder/note'), true)
  await filesystem.remove('/tmp/folder/note')
  assert.equal(await filesystem.exists('/tmp/folder/note'), false)
})

test('a sandbox is found, listed, and ends', async (t) => {
  const sandbox = await made(t)
  const again = await compute.sandbox.getById(sandbox.sandboxId)
  assert.equal((await again.runCommand('echo same')).stdout, 'same\n')
  const ids = async () => (await compute.sandbox.list()).map(({ sandboxId }) => sandboxId)
  assert.ok((await ids()).includes(sandbox.sandboxId))
  assert.equal((await sandbox.getInfo()).status, 'running')
  await sandbox.destroy()
  assert.ok(!(await ids()).includes(sandbox.sandboxId))
})

test('a port has an address', async (t) => {
  const sandbox = await made(t)
  assert.match(await sandbox.getUrl({ port: 8080 }), /8080/)
})

test('a snapshot is what others are made of', async (t) => {
  const sandbox = await made(t)
  await sandbox.filesystem.writeFile('/home/user/note', 'kept')
  const snapshot = await provider.snapshot.create(sandbox.sandboxId)
  t.after(() => provider.snapshot.delete(snapshot.id))
  const other = await made(t, { snapshotId: snapshot.id })
  assert.equal(await other.filesystem.readFile('/home/user/note'), 'kept')
})
