// What the driver reads: one JSON line a test.
import path from 'node:path'

// What a failed fetch says only in its cause.
const below = (cause) => (cause ? `: ${cause.code ?? cause.message ?? cause}` : '')

function reason(error) {
  const cause = error?.cause ?? error
  const text = typeof cause === 'string' ? cause : `${cause?.name ?? 'Error'}: ${cause?.message ?? cause}${below(cause?.cause)}`
  const at = /\((?:file:\/\/)?[^)]*\/(\w+\.test\.mjs:\d+)/.exec(cause?.stack ?? '')
  return at ? `${text} (${at[1]})` : text
}

export default async function* (events) {
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue
    if (data.details?.type === 'suite') continue
    // One that is known to fail says so (todo), with what is missing.
    const left = data.skip ?? (type === 'test:fail' ? data.todo : undefined)
    const result = left !== undefined ? 'skipped' : type === 'test:fail' ? 'failed' : 'passed'
    const line = { file: path.basename(data.file ?? ''), name: data.name, result, ms: Math.round(data.details?.duration_ms ?? 0) }
    if (result === 'failed') line.reason = reason(data.details?.error)
    if (result === 'skipped' && typeof left === 'string') line.reason = left
    yield `${JSON.stringify(line)}\n`
  }
}
