// For `./dev bench serve`: how long the SDK's own calls take. Prints one JSON line for each round.
//
//     node timed.mjs ROUNDS
import { Sandbox, template } from './lib.mjs'

const rounds = Number(process.argv[2] ?? 10)
for (let round = -3; round < rounds; round += 1) {
  const began = performance.now()
  const sandbox = await Sandbox.create(template, { timeoutMs: 60_000 })
  const made = performance.now()
  await sandbox.commands.run('true')
  const ran = performance.now()
  await sandbox.kill()
  // The first ones find nothing warm: neither Node.js nor the connections.
  if (round >= 0) console.log(JSON.stringify({ create: made - began, first: ran - began, kill: performance.now() - ran }))
}
