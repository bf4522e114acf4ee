// Files: reading and writing, what they are, folders, attributes, signed addresses.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { fresh, inSandbox, sdk, shareSandbox } from './lib.mjs'

const shared = shareSandbox()
const files = () => shared.sandbox.files
const run = async (command) => (await shared.sandbox.commands.run(command)).stdout

test('text, written and read', async () => {
  const path = `${fresh('file')}.txt`
  const { metadata, ...written } = await files().write(path, 'grüße\n')
  assert.deepEqual([written, metadata], [{ name: path, type: 'file', path: `/home/user/${path}` }, undefined])
  assert.equal(await files().read(path), 'grüße\n')
  await files().write(path, 'short')
  assert.equal(await files().read(path), 'short')
  assert.equal(await run(`stat -c %U:%G ${path}`), 'user:user\n')
})

test('an empty file, in every form', async () => {
  const path = fresh('empty')
  await files().write(path, '')
  assert.equal(await files().read(path), '')
  assert.equal((await files().read(path, { format: 'bytes' })).length, 0)
  assert.equal((await files().read(path, { format: 'blob' })).size, 0)
})

test('bytes, in every form', async () => {
  const path = fresh('bytes')
  const bytes = new Uint8Array(randomBytes(3_000_001))
  await files().write(path, bytes.buffer)
  assert.ok(Buffer.from(bytes).equals(await files().read(path, { format: 'bytes' })))
  const blob = await files().read(path, { format: 'blob' })
  assert.ok(Buffer.from(bytes).equals(Buffer.from(await blob.arrayBuffer())))
  const pieces = []
  for await (const piece of await files().read(path, { format: 'stream' })) pieces.push(piece)
  assert.ok(Buffer.from(bytes).equals(Buffer.concat(pieces)))
  await files().write(path, new Blob([bytes]))
  assert.ok(Buffer.from(bytes).equals(await files().read(path, { format: 'bytes' })))
})

test('a stream is sent as it comes', async () => {
  const path = fresh('stream')
  let left = 64
  const stream = new ReadableStream({
    pull(controller) {
      if (left === 0) return controller.close()
      left -= 1
      return controller.enqueue(new Uint8Array(65536).fill(left))
    },
  })
  await files().write(path, stream)
  assert.equal(await run(`stat -c %s ${path}; head -c 1 ${path} | od -An -tu1`), '4194304\n  63\n')
})

test('as the whole body instead of a form', async () => {
  const path = `sub/${fresh('octets')}`
  const written = await files().write(path, 'text', { useOctetStream: true })
  assert.equal(written.path, `/home/user/${path}`)
  assert.equal(await files().read(path), 'text')
})

test('compressed both ways', async () => {
  const path = fresh('compressed')
  const text = 'again and again '.repeat(50_000)
  await files().write(path, text, { gzip: true })
  assert.equal(await run(`stat -c %s ${path}`), `${text.length}\n`)
  assert.equal(await files().read(path, { gzip: true }), text)
  assert.equal(await files().read(path), text)
})

test('folders on the way are made and are the user\'s', async () => {
  const top = fresh('top')
  await files().write(`${top}/a/b/file`, 'text')
  assert.equal(await run(`stat -c '%n %U' ${top} ${top}/a/b ${top}/a/b/file`), `${top} user\n${top}/a/b user\n${top}/a/b/file user\n`)
})

test('several files in one call', async () => {
  const top = fresh('several')
  const wanted = [{ path: `${top}/one`, data: 'first' }, { path: `/tmp/${top}`, data: new Blob(['second']) }]
  const written = await files().write(wanted)
  assert.deepEqual(written.map(({ path }) => path), [`/home/user/${top}/one`, `/tmp/${top}`])
  assert.equal(await files().read(`${top}/one`), 'first')
  assert.equal(await files().read(`/tmp/${top}`), 'second')
  assert.deepEqual(await files().write([]), [])
})

test('as another user', async () => {
  const path = `/root/${fresh('file')}`
  await files().write(path, 'of root', { user: 'root' })
  assert.equal(await files().read(path, { user: 'root' }), 'of root')
  assert.equal((await files().getInfo(path, { user: 'root' })).owner, 'root')
  await assert.rejects(files().read('file', { user: 'nobody-here' }), sdk.AuthenticationError)
})

test('paths: of the home, with a tilde, with dots', async () => {
  const name = fresh('file')
  await files().write(name, 'text')
  for (const path of [`~/${name}`, `./${name}`, `/home/user/../user/${name}`]) assert.equal(await files().read(path), 'text', path)
})

test('names with spaces and other characters', async () => {
  const path = `${fresh('dir')}/ein Name mit ü, "quotes" & 100%.txt`
  await files().write(path, 'text')
  assert.equal(await files().read(path), 'text')
  assert.equal((await files().getInfo(path)).path, `/home/user/${path}`)
})

test('reading what is not there, or no file', async () => {
  await assert.rejects(files().read('not-here'), (error) => {
    assert.ok(error instanceof sdk.FileNotFoundError, String(error))
    assert.match(error.message, /'\/home\/user\/not-here' does not exist/)
    return true
  })
  await assert.rejects(files().read('/home/user'), sdk.InvalidArgumentError)
  await assert.rejects(files().read('not-here', { format: 'stream' }), sdk.FileNotFoundError)
})

test('writing where a folder is', async () => {
  await assert.rejects(files().write('/home/user', 'text'), sdk.InvalidArgumentError)
})

test('more than fits on the disk', async (t) => {
  const sandbox = await inSandbox(t)
  const free = Number((await sandbox.commands.run('df --output=avail -B1 /home/user | tail -1')).stdout)
  if (!(free > 0 && free < 1.5e9)) return t.skip(`${free} bytes are free: too many to fill`)
  await sandbox.commands.run(`head -c ${free - 1_000_000} /dev/zero > filler`)
  await assert.rejects(sandbox.files.write('large', 'x'.repeat(4_000_000)), sdk.NotEnoughSpaceError)
  assert.equal((await sandbox.commands.run('echo still here')).stdout, 'still here\n')
})

test('getInfo', async () => {
  const path = fresh('file')
  await files().write(path, 'four')
  await run(`chmod 640 ${path}`)
  const info = await files().getInfo(path)
  assert.ok(Math.abs(info.modifiedTime - Date.now()) < 60_000)
  const { name, type, size, mode, permissions, owner, group } = info
  assert.deepEqual({ name, type, size, mode, permissions, owner, group }, {
    name: path, type: 'file', size: 4, mode: 0o640, permissions: '-rw-r-----', owner: 'user', group: 'user',
  })
  assert.equal(info.path, `/home/user/${path}`)
  const folder = await files().getInfo('/tmp')
  assert.deepEqual([folder.type, folder.permissions], ['dir', 'dtrwxrwxrwx'])
  await assert.rejects(files().getInfo('not-here'), sdk.FileNotFoundError)
})

test('getInfo of links', async () => {
  const top = fresh('links')
  await run(`mkdir ${top}; cd ${top}; echo x > file; ln -s file link; ln -s link chain; ln -s .. up; ln -s nowhere broken`)
  const info = await files().getInfo(`${top}/chain`)
  assert.deepEqual([info.name, info.type, info.symlinkTarget], ['chain', 'file', `/home/user/${top}/file`])
  assert.match(info.permissions, /^L/)
  assert.deepEqual((await files().list(top)).map(({ name, type }) => [name, type]),
    [['chain', 'file'], ['file', 'file'], ['link', 'file'], ['up', 'dir']])
})

test('exists', async () => {
  const path = fresh('file')
  assert.equal(await files().exists(path), false)
  await files().write(path, '')
  assert.equal(await files().exists(path), true)
  assert.equal(await files().exists('/tmp'), true)
})

test('list: sorted, as deep as asked', async () => {
  const top = fresh('tree')
  await run(`mkdir -p ${top}/b/c/d; touch ${top}/z ${top}/a ${top}/b/file ${top}/b/c/file`)
  const names = async (depth) => (await files().list(top, { depth })).map(({ path }) => path.replace(`/home/user/${top}/`, ''))
  assert.deepEqual(await names(1), ['a', 'b', 'z'])
  assert.deepEqual(await names(2), ['a', 'b', 'b/c', 'b/file', 'z'])
  assert.deepEqual(await names(3), ['a', 'b', 'b/c', 'b/c/d', 'b/c/file', 'b/file', 'z'])
  assert.deepEqual((await files().list(top))[1].type, 'dir')
})

test('list: many entries', async () => {
  const top = fresh('many')
  await run(`mkdir ${top}; cd ${top}; seq 1 3000 | xargs touch`)
  assert.equal((await files().list(top)).length, 3000)
})

test('list of what is not there, or no folder', async () => {
  await assert.rejects(files().list('not-here'), sdk.FileNotFoundError)
  await assert.rejects(files().list('/etc/passwd'), sdk.InvalidArgumentError)
})

test('makeDir: true where it made one', async () => {
  const path = `${fresh('dir')}/below`
  assert.equal(await files().makeDir(path), true)
  assert.equal(await files().makeDir(path), false)
  assert.equal(await run(`stat -c '%F %U' ${path}`), 'directory user\n')
})

test('rename', async () => {
  const [from, to] = [fresh('from'), `${fresh('to')}/file`]
  await files().write(from, 'text')
  await files().makeDir(to.split('/')[0])
  const info = await files().rename(from, to)
  assert.deepEqual([info.name, info.type, info.path], ['file', 'file', `/home/user/${to}`])
  assert.equal(await files().exists(from), false)
  assert.equal(await files().read(to), 'text')
  await assert.rejects(files().rename('not-here', 'elsewhere'), sdk.FileNotFoundError)
})

test('remove: a file, a whole folder, nothing', async () => {
  const top = fresh('gone')
  await files().write(`${top}/a/file`, 'text')
  await files().write(`${top}/file`, 'text')
  await files().remove(`${top}/file`)
  assert.equal(await files().exists(`${top}/file`), false)
  await files().remove(top)
  assert.equal(await files().exists(top), false)
  await files().remove(top)
})

test('metadata is kept with the file', async () => {
  const path = fresh('noted')
  const written = await files().write(path, 'text', { metadata: { Author: 'somebody', purpose: 'a test' } })
  assert.deepEqual(written.metadata, { author: 'somebody', purpose: 'a test' })
  assert.deepEqual((await files().getInfo(path)).metadata, { author: 'somebody', purpose: 'a test' })
  assert.equal(await run(`python3 -c "import os; print(os.getxattr('${path}', 'user.e2b.author').decode())"`), 'somebody\n')
  const [entry] = (await files().list('.')).filter(({ name }) => name === path)
  assert.deepEqual(entry.metadata, { author: 'somebody', purpose: 'a test' })
  await files().rename(path, `${path}-moved`)
  assert.deepEqual((await files().getInfo(`${path}-moved`)).metadata, { author: 'somebody', purpose: 'a test' })
  await files().write(`${path}-moved`, 'text', { metadata: { other: 'one' }, useOctetStream: true })
  assert.deepEqual((await files().getInfo(`${path}-moved`)).metadata, { other: 'one' })
  await files().write(`${path}-moved`, 'text')
  assert.equal((await files().getInfo(`${path}-moved`)).metadata, undefined)
})

test('signed addresses: download, upload', async () => {
  const path = fresh('signed')
  await files().write(path, 'hello')
  const download = await fetch(await shared.sandbox.downloadUrl(path, { useSignatureExpiration: 60 }))
  assert.deepEqual([download.status, await download.text()], [200, 'hello'])
  const form = new FormData()
  form.append('file', new Blob(['from outside']), 'ignored')
  const upload = await fetch(await shared.sandbox.uploadUrl(path), { method: 'POST', body: form })
  assert.equal(upload.status, 200)
  assert.deepEqual(await upload.json(), [{ name: path, path: `/home/user/${path}`, type: 'file' }])
  assert.equal(await files().read(path), 'from outside')
  const asRoot = await fetch(await shared.sandbox.uploadUrl(`/root/${path}`, { user: 'root' }), { method: 'POST', body: form })
  assert.equal(asRoot.status, 200)
})

test('signed addresses: expired, or for another file', async () => {
  const path = fresh('signed')
  await files().write(path, 'hello')
  await files().write(`${path}-other`, 'hello')
  const denied = async (url, message) => {
    const answer = await fetch(url)
    assert.deepEqual([answer.status, await answer.json()], [401, { code: 401, message }])
  }
  await denied(await shared.sandbox.downloadUrl(path, { useSignatureExpiration: -120 }), 'signature is already expired')
  const url = new URL(await shared.sandbox.downloadUrl(path))
  url.searchParams.set('path', `${path}-other`)
  const answer = await fetch(url)
  assert.equal(answer.status, 401)
  await answer.body?.cancel()
})

test('a part of a file', async () => {
  const path = fresh('part')
  await files().write(path, '0123456789')
  const answer = await fetch(await shared.sandbox.downloadUrl(path), { headers: { Range: 'bytes=3-5' } })
  assert.deepEqual([answer.status, answer.headers.get('content-range'), await answer.text()], [206, 'bytes 3-5/10', '345'])
})

test('sixteen files at the same time', async () => {
  const top = fresh('parallel')
  const numbers = Array.from({ length: 16 }, (_, number) => number)
  await Promise.all(numbers.map((number) => files().write(`${top}/${number}`, String(number).repeat(100_000))))
  const read = await Promise.all(numbers.map((number) => files().read(`${top}/${number}`)))
  assert.ok(read.every((text, number) => text === String(number).repeat(100_000)))
})
