// Servers inside a sandbox, reached through ours.
import assert from 'node:assert/strict'
import http from 'node:http'
import https from 'node:https'
import { test } from 'node:test'

import { Sandbox, fetchPort, inSandbox, portAddress, shareSandbox, template, until } from './lib.mjs'

const shared = shareSandbox()

// On the loopback address of the sandbox, where nothing but the server's own way in reaches it.
const SERVER = `
import base64, hashlib, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101); self.send_header("Upgrade", "echo"); self.send_header("Connection", "Upgrade"); self.end_headers()
            self.close_connection = True
            while piece := self.connection.recv(4096):
                self.connection.sendall(piece.upper())
            return
        self.answer(f"{self.path} for {self.headers['Host']}".encode())
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])).upper())
    def answer(self, body):
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
`
let serving
function serve() {
  serving ??= (async () => {
    await shared.sandbox.files.write('/tmp/server.py', SERVER)
    await shared.sandbox.commands.run('python3 /tmp/server.py', { background: true, timeoutMs: 0 })
    await until('the server answers', async () => (await fetchPort(shared.sandbox, 8099)).ok)
  })()
  return serving
}

test('getHost names port, sandbox and domain', () => {
  assert.match(shared.sandbox.getHost(3000), new RegExp(`^3000-${shared.sandbox.sandboxId}\\..+`))
})

test('a request to a port', async () => {
  await serve()
  const answer = await fetchPort(shared.sandbox, 8099, '/a/b?c=d%20e')
  assert.equal(answer.status, 200)
  assert.match(await answer.text(), /^\/a\/b\?c=d%20e for /)
})

test('a large body both ways', async () => {
  await serve()
  const body = 'abc'.repeat(1_000_000)
  const answer = await fetchPort(shared.sandbox, 8099, '/', { method: 'POST', body })
  assert.equal(await answer.text(), body.toUpperCase())
})

test('an upgraded connection', async () => {
  await serve()
  const { url, headers } = portAddress(shared.sandbox.sandboxId, 8099, shared.sandbox.getHost(8099))
  const client = url.startsWith('https:') ? https : http
  const request = client.request(url, { headers: { ...headers, Connection: 'Upgrade', Upgrade: 'echo' } })
  const socket = await new Promise((resolve, reject) => {
    request.on('upgrade', (_, upgraded) => resolve(upgraded))
    request.on('response', (answer) => reject(new Error(`status ${answer.statusCode}`)))
    request.on('error', reject)
    request.end()
  })
  let seen = ''
  socket.on('data', (bytes) => { seen += bytes })
  for (const text of ['first', ' second']) {
    socket.write(text)
    await until(`the echo of ${text}`, () => seen.endsWith(text.toUpperCase()))
  }
  socket.destroy()
})

test('a port that nobody listens on', async () => {
  const answer = await fetchPort(shared.sandbox, 8098)
  assert.equal(answer.status, 502)
  assert.deepEqual(await answer.json(), {
    sandboxId: shared.sandbox.sandboxId, message: 'The sandbox is running but port is not open', port: 8098, code: 502,
  })
})

test('a sandbox that is not there', async (t) => {
  const sandbox = await inSandbox(t)
  await sandbox.kill()
  const answer = await fetchPort(sandbox, 8099)
  assert.equal(answer.status, 502)
  assert.deepEqual(await answer.json(), { sandboxId: sandbox.sandboxId, message: 'The sandbox was not found', code: 502 })
})

test('without public traffic a port asks for the token', async (t) => {
  const sandbox = await inSandbox(t, { network: { allowPublicTraffic: false } })
  assert.ok(sandbox.trafficAccessToken)
  await sandbox.commands.run('python3 -m http.server 8097', { background: true, timeoutMs: 0 })
  const headers = { 'e2b-traffic-access-token': sandbox.trafficAccessToken }
  await until('the server answers', async () => (await fetchPort(sandbox, 8097, '/', { headers })).ok)
  assert.equal((await fetchPort(sandbox, 8097)).status, 403)
  assert.equal((await fetchPort(sandbox, 8097, '/', { headers: { 'e2b-traffic-access-token': 'wrong' } })).status, 403)
  assert.equal((await sandbox.getInfo()).network?.allowPublicTraffic, false)
})

test('what the server inside sees as its host', async (t) => {
  const sandbox = await Sandbox.create(template, { timeoutMs: 60_000, network: { maskRequestHost: 'masked.example.com:${PORT}' } })
  t.after(() => sandbox.kill())
  await sandbox.files.write('/tmp/server.py', SERVER)
  await sandbox.commands.run('python3 /tmp/server.py', { background: true, timeoutMs: 0 })
  await until('the server answers', async () => (await fetchPort(sandbox, 8099)).ok)
  assert.equal(await (await fetchPort(sandbox, 8099, '/x')).text(), '/x for masked.example.com:8099')
})
