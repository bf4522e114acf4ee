// Loaded into a test's Node.js by --require: every name of CAISSON_TEST_DOMAIN is this machine, every
// other name is unknown. So a test asks no resolver and reaches nobody else.
'use strict'

const dns = require('node:dns')

const domain = process.env.CAISSON_TEST_DOMAIN
const real = dns.lookup

function lookup(host, options, callback) {
  if (typeof options === 'function') return lookup(host, {}, options)
  const wanted = typeof options === 'number' ? { family: options } : (options ?? {})
  const name = String(host).toLowerCase()
  if (name === domain || name.endsWith(`.${domain}`)) return real('127.0.0.1', wanted, callback)
  if (name === 'localhost' || /^[0-9.]+$/.test(name) || name.includes(':')) return real(host, wanted, callback)
  const error = Object.assign(new Error(`getaddrinfo ENOTFOUND ${host}`), { code: 'ENOTFOUND', syscall: 'getaddrinfo', hostname: host })
  return process.nextTick(callback, error)
}

dns.lookup = lookup
