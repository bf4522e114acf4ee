// Commands: output, input, users, time limits, and joining what runs already.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { sdk, shareSandbox, until } from './lib.mjs'

const shared = shareSandbox()
const run = (command, options) => shared.sandbox.commands.run(command, options)
const start = (command, options) => run(command, { ...options, background: true })
const lives = async (pid) => (await run(`kill -0 ${pid} 2>/dev/null && echo yes || echo no`)).stdout === 'yes\n'

test('output and status', async () => {
  const result = await run('echo out; echo err >&2')
  assert.deepEqual([result.exitCode, result.stdout, result.stderr, result.error], [0, 'out\n', 'err\n', undefined])
})

test('a command that fails', async () => {
  await assert.rejects(run('echo before; echo why >&2; exit 7'), (error) => {
    assert.ok(error instanceof sdk.CommandExitError, String(error))
    assert.deepEqual([error.exitCode, error.stdout, error.stderr], [7, 'before\n', 'why\n'])
    assert.equal(error.error, 'exit status 7')
    return true
  })
})

test('a command that a signal ended', async () => {
  await assert.rejects(run('kill -9 $$'), (error) => {
    assert.equal(error.exitCode, -1)
    assert.equal(error.error, 'signal: killed')
    return true
  })
})

test('a program that is not there', async () => {
  await assert.rejects(run('no-such-program-here'), (error) => error.exitCode === 127)
})

test('much output arrives whole and in order', async () => {
  const { stdout } = await run('seq 1 300000')
  const lines = stdout.split('\n')
  assert.equal(lines.length, 300001)
  assert.equal(lines[299999], '300000')
  assert.ok(lines.slice(0, -1).every((line, index) => line === String(index + 1)))
})

test('characters of several bytes are not torn', async () => {
  const { stdout } = await run(`python3 -c "print('aü€😀' * 20000)"`)
  assert.equal(stdout, `${'aü€😀'.repeat(20000)}\n`)
})

test('callbacks get output while the command runs', async () => {
  const seen = []
  const handle = await start('echo first; read line; echo "then $line"', {
    stdin: true, onStdout: (text) => seen.push(text), onStderr: () => assert.fail('there is no such output'),
  })
  await until('the first line', () => seen.join('') === 'first\n')
  await shared.sandbox.commands.sendStdin(handle.pid, 'typed\n')
  await handle.wait()
  assert.equal(seen.join(''), 'first\nthen typed\n')
})

test('variables', async () => {
  const { stdout } = await run('echo "$A/$B"; echo $HOME $USER $LOGNAME', { envs: { A: 'one two', B: "it's" } })
  assert.equal(stdout, "one two/it's\n/home/user user user\n")
})

test('the working directory', async () => {
  assert.equal((await run('pwd')).stdout, '/home/user\n')
  assert.equal((await run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  await run('mkdir -p below')
  assert.equal((await run('pwd', { cwd: 'below' })).stdout, '/home/user/below\n')
})

test('a working directory that is not there', async () => {
  await assert.rejects(run('pwd', { cwd: '/not/here' }), (error) => {
    assert.ok(error instanceof sdk.InvalidArgumentError, String(error))
    assert.match(error.message, /cwd '\/not\/here' does not exist/)
    return true
  })
})

test('users', async () => {
  assert.equal((await run('id -un')).stdout, 'user\n')
  assert.equal((await run('id -un; pwd', { user: 'root' })).stdout, 'root\n/root\n')
  await assert.rejects(run('id', { user: 'nobody-here' }), (error) => {
    assert.ok(error instanceof sdk.AuthenticationError, String(error))
    assert.match(error.message, /invalid username: 'nobody-here'/)
    return true
  })
})

test('sudo asks for no password', async () => {
  assert.equal((await run('sudo -n id -u')).stdout, '0\n')
})

test('a time limit ends the command and what it started', async () => {
  const handle = await start('sleep 301 & echo $!; wait', { timeoutMs: 1500 })
  await assert.rejects(handle.wait(), sdk.TimeoutError)
  const child = Number(handle.stdout)
  assert.ok(child > 0)
  await until('both ended', async () => !(await lives(handle.pid)))
})

test('a background command: its pid, its output, its end', async () => {
  const handle = await start('echo $$; exec sleep 0.2')
  const result = await handle.wait()
  assert.equal(result.stdout, `${handle.pid}\n`)
  assert.equal(handle.exitCode, 0)
})

test('list shows what runs', async () => {
  const handle = await start('sleep 302', { cwd: '/tmp', envs: { MARK: 'here' } })
  const entry = (await shared.sandbox.commands.list()).find((process) => process.pid === handle.pid)
  assert.equal(entry.cmd, '/bin/bash')
  assert.deepEqual(entry.args, ['-l', '-c', 'sleep 302'])
  assert.equal(entry.cwd, '/tmp')
  assert.equal(entry.envs.MARK, 'here')
  await handle.kill()
  await until('it is gone', async () => !(await shared.sandbox.commands.list()).some(({ pid }) => pid === handle.pid))
})

test('kill', async () => {
  const handle = await start('sleep 303')
  assert.equal(await shared.sandbox.commands.kill(handle.pid), true)
  await assert.rejects(handle.wait(), sdk.CommandExitError)
  assert.equal(await lives(handle.pid), false)
  assert.equal(await shared.sandbox.commands.kill(handle.pid), false)
  assert.equal(await shared.sandbox.commands.kill(4_000_000), false)
})

test('standard input: text, then its end', async () => {
  const handle = await start('cat; echo over', { stdin: true })
  await shared.sandbox.commands.sendStdin(handle.pid, 'one\n')
  await handle.sendStdin('two\n')
  await shared.sandbox.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout, 'one\ntwo\nover\n')
})

test('standard input: much of it', async () => {
  const handle = await start('wc -c', { stdin: true })
  const piece = 'x'.repeat(100_000)
  for (let count = 0; count < 10; count += 1) await handle.sendStdin(piece)
  await handle.closeStdin()
  assert.equal((await handle.wait()).stdout.trim(), '1000000')
})

test('without standard input a reader finds its end', async () => {
  assert.equal((await run('cat; echo over')).stdout, 'over\n')
})

test('standard input of a command that has none, and of none at all', async () => {
  const handle = await start('sleep 304')
  await assert.rejects(handle.sendStdin('text'))
  await handle.kill()
  await assert.rejects(shared.sandbox.commands.sendStdin(4_000_000, 'text'), sdk.NotFoundError)
})

test('who disconnects does not end the command', async () => {
  const handle = await start('for i in 1 2 3; do read line; echo got $line; done', { stdin: true })
  await handle.disconnect()
  const joined = await shared.sandbox.commands.connect(handle.pid)
  for (const word of ['a', 'b', 'c']) await shared.sandbox.commands.sendStdin(handle.pid, `${word}\n`)
  assert.equal((await joined.wait()).stdout, 'got a\ngot b\ngot c\n')
})

test('several readers of one command', async () => {
  const handle = await start('read line; echo to all; exit 3', { stdin: true })
  const readers = [await shared.sandbox.commands.connect(handle.pid), await shared.sandbox.commands.connect(handle.pid)]
  await handle.sendStdin('\n')
  for (const reader of [handle, ...readers]) {
    await assert.rejects(reader.wait(), (error) => error.exitCode === 3 && error.stdout === 'to all\n')
  }
})

test('connect to what is not there', async () => {
  await assert.rejects(shared.sandbox.commands.connect(4_000_000), sdk.NotFoundError)
})

test('twenty at the same time', async () => {
  const results = await Promise.all(Array.from({ length: 20 }, (_, number) => run(`sleep 0.1; echo ${number}`)))
  assert.deepEqual(results.map(({ stdout }) => Number(stdout)), Array.from({ length: 20 }, (_, number) => number))
})

test('a long command line', async () => {
  const word = 'y'.repeat(50_000)
  assert.equal((await run(`echo ${word} | wc -c`)).stdout.trim(), '50001')
})

test('git: a repository, a commit, its status', async () => {
  const { git } = shared.sandbox
  await git.init('repository')
  await shared.sandbox.files.write('repository/file', 'text')
  await git.add('repository')
  await git.commit('repository', 'first', { authorName: 'Name', authorEmail: 'name@example.com' })
  const status = await git.status('repository')
  assert.equal(status.fileStatus?.length ?? 0, 0)
  assert.equal((await run('git -C repository log --format=%s')).stdout, 'first\n')
})
