// Terminals.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { sdk, shareSandbox, until } from './lib.mjs'

const shared = shareSandbox()

// A terminal whose output is in `text()`.
async function terminal(options = {}) {
  const decoder = new TextDecoder()
  let seen = ''
  const handle = await shared.sandbox.pty.create({
    cols: 80, rows: 24, ...options, onData: (bytes) => { seen += decoder.decode(bytes, { stream: true }) },
  })
  const type = (text) => shared.sandbox.pty.sendInput(handle.pid, new TextEncoder().encode(text))
  return { handle, type, text: () => seen }
}

test('a shell on a terminal', async () => {
  const { handle, type, text } = await terminal({ envs: { MARK: 'of mine' }, cwd: '/tmp' })
  await type('tty; echo "$MARK $PWD $TERM" | tr a-z A-Z; exit\n')
  const { exitCode } = await handle.wait()
  assert.equal(exitCode, 0)
  assert.match(text(), /\/dev\/pts\/\d+/)
  assert.match(text(), /OF MINE \/TMP XTERM/)
})

test('its size, before and after a change', async () => {
  const { handle, type, text } = await terminal({ cols: 100, rows: 30 })
  await type('stty size\n')
  await until('the first size', () => text().includes('30 100'))
  await shared.sandbox.pty.resize(handle.pid, { cols: 120, rows: 40 })
  await type('stty size\n')
  await until('the new size', () => text().includes('40 120'))
  await shared.sandbox.pty.kill(handle.pid)
  await assert.rejects(handle.wait())
})

test('kill, and of what is not there', async () => {
  const { handle } = await terminal()
  assert.equal(await shared.sandbox.pty.kill(handle.pid), true)
  await assert.rejects(handle.wait(), sdk.CommandExitError)
  assert.equal(await shared.sandbox.pty.kill(4_000_000), false)
})

test('connect from elsewhere', async () => {
  const { handle, type } = await terminal()
  await handle.disconnect()
  let seen = ''
  const joined = await shared.sandbox.pty.connect(handle.pid, { onData: (bytes) => { seen += new TextDecoder().decode(bytes) } })
  await type('echo to $((40 + 2))\n')
  await until('the answer', () => seen.includes('to 42'))
  await type('exit\n')
  assert.equal((await joined.wait()).exitCode, 0)
})

test('as another user, with an interrupt', async () => {
  const { handle, type, text } = await terminal({ user: 'root' })
  await type('id -un; sleep 300\n')
  await until('the user', () => /\broot\r?\n/.test(text()))
  await type('\x03')
  await type('echo status $?; exit 0\n')
  await handle.wait()
  assert.match(text(), /status 130/)
})
