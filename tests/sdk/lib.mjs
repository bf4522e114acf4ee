// What the test files share: the SDK under test, sandboxes that end with their file, waiting.
//
// CAISSON_SDK is the npm alias of the SDK (package.json), CAISSON_SDK_TEMPLATE the template that
// sandboxes are made from. Where the server is, the SDK itself reads from its own variables.
import assert from 'node:assert/strict'
import { after, before } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'

export const alias = process.env.CAISSON_SDK ?? 'e2b-2.51'
export const sdk = await import(alias)
export const { Sandbox } = sdk
export const template = process.env.CAISSON_SDK_TEMPLATE ?? 'base'

// A sandbox of its own for one test, which ends with it.
export async function inSandbox(test, options = {}) {
  const sandbox = await Sandbox.create(template, { timeoutMs: 120_000, ...options })
  test.after(() => sandbox.kill().catch(() => {}))
  return sandbox
}

// One sandbox for all tests of a file: `shared.sandbox`.
export function shareSandbox(options = {}) {
  const shared = {}
  before(async () => {
    shared.sandbox = await Sandbox.create(template, { timeoutMs: 300_000, ...options })
  })
  after(() => shared.sandbox?.kill())
  return shared
}

// The value of condition(), asked for again and again until it is true.
export async function until(what, condition, seconds = 15) {
  const end = Date.now() + seconds * 1000
  for (;;) {
    const value = await condition()
    if (value) return value
    if (Date.now() > end) assert.fail(`${what}: not after ${seconds} s`)
    await pause(50)
  }
}

// A request to a port of a sandbox, as a user's own client makes it: by the sandbox's host name, or, where
// the server is one address for all, by the headers that name the sandbox.
export function fetchPort(sandbox, port, path = '/', options = {}) {
  const { url, headers } = portAddress(sandbox.sandboxId, port, sandbox.getHost(port))
  return fetch(new URL(path, url), { ...options, headers: { ...headers, ...options.headers } })
}

export function portAddress(id, port, host) {
  const one = process.env.E2B_SANDBOX_URL
  if (!one) return { url: `https://${host}`, headers: {} }
  return { url: one, headers: { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': String(port) } }
}

let count = 0
// A name that no other test uses.
export function fresh(prefix = 'name') {
  count += 1
  return `${prefix}-${process.pid}-${count}`
}

// The body of a test of what this server may say that it has not: a 501 is a test left out, with the
// server's own sentence.
export function whereThere(body) {
  return async (t) => {
    try {
      await body(t)
    } catch (error) {
      if (!/^501\b/.test(error?.message ?? '')) throw error
      t.skip(error.message)
    }
  }
}
