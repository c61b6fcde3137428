// Tests index.js: against a stand-in for the helper, whose answers are known, and, where TRAPLINE_TEST_COMMAND names
// one, against `trapline serve` itself (TRAPLINE_TEST_TARGETS: the folder of the programs to trace).

'use strict';

const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, afterEach, before, describe, it } = require('node:test');

const { Helper, Session, TraplineError, version } = require('..');

const MAX = 2n ** 64n - 1n;
const LEAST = -(2n ** 63n);
const NO_DROPS = { record: 0, aggregation: 0, dynamic: 0, speculation: 0, speculative: 0, level: 0, no_slot: 0, samples: 0,
  malformed: 0, client: 0 };
const python = process.env.TRAPLINE_TEST_PYTHON ?? 'python3';
const realCommand = process.env.TRAPLINE_TEST_COMMAND;
const targets = process.env.TRAPLINE_TEST_TARGETS;

let open = [];
const tracked = async (session) => {
  open.push(await session);
  return session;
};
const closeAll = async () => {
  for (const session of open) await session.close();
  open = [];
};
const failsWith = (kind, pattern) => (error) =>
  error instanceof TraplineError && error.kind === kind && pattern.test(error.message);

describe('with a stand-in', () => {
  let folder, log, standIn;

  before(() => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'trapline-client-'));
    log = path.join(folder, 'log');
    standIn = path.join(folder, 'trapline');
    const fake = path.join(__dirname, '..', '..', 'tests', 'fake_serve.py');
    fs.writeFileSync(standIn, `#!/bin/sh\nexec '${python}' -B '${fake}' "$@"\n`, { mode: 0o755 });
    process.env.FAKE_SERVE_LOG = log;
    process.env.TRAPLINE_COMMAND = standIn;
  });
  after(() => {
    fs.rmSync(folder, { recursive: true });
    delete process.env.FAKE_SERVE_LOG;
  });
  afterEach(async () => {
    await closeAll();
    process.env.TRAPLINE_COMMAND = standIn;
    fs.rmSync(log, { force: true });
  });

  const asked = () => fs.readFileSync(log, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  const attach = (options) => tracked(Session.attach(4711, options));
  const running = async (text, options) => {
    const session = await attach(options);
    await session.compile(text);
    await session.start();
    return session;
  };
  const all = async (iterable) => {
    const list = [];
    for await (const item of iterable) list.push(item);
    return list;
  };

  it('asks as the protocol says', async () => {
    const session = await attach({ records: true });
    assert.equal(session.pid, 4711);
    const options = { bufsize: '8m', zdefs: true };
    await session.compile('BEGIN {}', { arguments: ['word', 5, MAX], options, name: 'script.d' });
    await session.start();
    await session.snapshot({ text: true });
    await session.clear();
    await session.stop();
    await session.close();
    assert.deepEqual(asked(), [
      { method: 'initialize', protocol: 1, client: `node ${version}` },
      { method: 'open', target: { pid: 4711 }, records: 'push' },
      {
        method: 'compile',
        session: 1,
        text: 'BEGIN {}',
        name: 'script.d',
        arguments: ['word', '5', `${MAX}`],
        options,
      },
      { method: 'start', session: 1 },
      { method: 'snapshot', session: 1, text: true },
      { method: 'clear', session: 1 },
      { method: 'stop', session: 1 },
      { method: 'close', session: 1 },
    ]);
  });

  it('opens every kind of target', async () => {
    await tracked(Session.self());
    await tracked(Session.launch('ls -l'));
    await tracked(Session.launch(['ls', '-l']));
    const opened = asked().filter(({ method }) => method === 'open').map(({ target }) => target);
    assert.deepEqual(opened, [{ self: true }, { command: 'ls -l' }, { argv: ['ls', '-l'] }]);
  });

  it('lets a command write where this process does', async () => {
    const program = "require('.').Session.launch('x').then((session) => session.close())";
    const done = spawnSync(process.execPath, ['-e', program], { encoding: 'utf8', cwd: path.join(__dirname, '..') });
    assert.equal(done.stdout, "the command's output\n");
    assert.deepEqual(asked()[1].stdio, [3, 4, 5]);
  });

  it('compiles, starts and stops', async () => {
    const session = await attach();
    const compiled = await session.compile('BEGIN {}');
    assert.deepEqual([compiled.matched, compiled.notes, compiled.diagnostics[0].tag], [3, ['a note'], 'PDESC_ZERO']);
    const started = await session.start();
    assert.equal(started.armed, 2);
    assert.deepEqual(started.refused, [
      { probe: 'pid9:libc.so.6:f:entry', address: MAX, reason: 'too short', detail: '3 bytes' },
    ]);
    assert.deepEqual(await session.stop(), ['stopped']);
  });

  it('takes an answer in pieces, and one after a notification', async () => {
    assert.equal((await (await running('torn')).snapshot()).state, 'running');
    const told = [];
    const session = await attach();
    session.on('note', (text) => told.push(text));
    await session.compile('slow');
    await session.start();
    assert.deepEqual([told, session.notes], [['wait'], ['wait']]);
  });

  it('has all values exact', async () => {
    const session = await attach();
    await session.compile('x');
    const snapshot = await session.snapshot({ text: true });
    assert.equal(snapshot.text, 'what the command prints\n');
    assert.deepEqual([snapshot.state, snapshot.drops], ['compiled', { ...NO_DROPS, aggregation: 1 }]);
    assert.equal((await session.snapshot()).text, undefined);
    assert.deepEqual([...snapshot].map(({ name }) => name).slice(0, 2), ['calls', 'bytes']);
    assert.equal(snapshot.get('unknown'), undefined);
    assert.equal(snapshot.get('calls').value, 1011);
    assert.equal(snapshot.get('bytes').value, MAX);
    assert.deepEqual(snapshot.get('sizes').histogram, [
      { low: LEAST, high: -1, count: 1 },
      { low: 64, high: 127, count: 1000 },
    ]);
    assert.deepEqual(snapshot.get('linear').histogram, [
      { low: null, high: 9, count: 2 },
      { low: 100, high: null, count: MAX },
    ]);
    assert.throws(() => snapshot.get('calls').histogram, TypeError);
    assert.deepEqual(snapshot.get('mean').value, { count: 4, sum: 10 });
    assert.equal(snapshot.get('spread').value.squares, 2n ** 128n - 1n);
    assert.equal(snapshot.get('none').value, 0);
    assert.equal(snapshot.get('nothing').value, undefined);
  });

  it('finds keys', async () => {
    const session = await attach();
    await session.compile('x');
    const by = (await session.snapshot()).get('by');
    assert.deepEqual([by.function, by.normal, by.types], ['min', 1000, ['string', 'int', 'bytes']]);
    assert.deepEqual(by.entries[0], { key: ['größe', -5, Buffer.from([0, 255])], value: LEAST });
    assert.equal(by.get(Buffer.from([255, 65]), 2 ** 53, Buffer.alloc(0)), 3);
    assert.equal(by.get('größe', -5n, Buffer.from([0, 255])), LEAST);
    assert.equal(by.get('größe'), undefined);
    assert.equal([...by].length, 2);
    assert.throws(() => by.value, TypeError);
  });

  it('decodes all kinds of actions', async () => {
    const [record] = await all((await running('records 1 exits', { records: true })).records());
    assert.deepEqual([record.cpu, record.tid, record.time, record.probe.function], [1, 77, 1000, 'malloc']);
    assert.deepEqual(record.actions.map(({ kind }) => kind), ['printf', 'trace', 'printa', 'exit']);
    assert.deepEqual(record.actions[0].values, [0, MAX, 's', Buffer.from([0, 255])]);
    assert.deepEqual(record.actions[1].values, [LEAST]);
    assert.equal(record.actions[2].aggregations[0].value, 1011);
    assert.equal(record.actions[0].text, '0\n');
  });

  it('iterates over records until the program ends', async () => {
    const session = await running('late records 2500', { records: true });
    const numbers = (await all(session)).map((record) => record.actions[0].values[0]);
    assert.deepEqual(numbers, Array.from({ length: 2500 }, (_, i) => i));
    assert.deepEqual(session.ended, { reason: 'exit', status: 3, text: 'the program said exit(3)' });
    assert.equal(await session.wait(), session.ended);
  });

  it('iterates over what is left after stop', async () => {
    const session = await running('records 10', { records: true });
    await session.stop();
    assert.equal(await session.wait(), null);
    assert.equal((await all(session)).length, 10);
    assert.equal((await all(session)).length, 0);
  });

  it('ends a waiting iteration when another call stops', async () => {
    const session = await running('x', { records: true });
    const waiting = all(session);
    await session.stop();
    assert.deepEqual(await waiting, []);
  });

  it('emits records, the first listener gets the older ones too', async () => {
    const session = await running('records 1500', { records: true });
    await session.snapshot();
    const got = [];
    session.on('record', (record) => got.push(record.actions[0].values[0]));
    await session.stop();
    assert.equal(got.length, 1500);
    assert.equal(got[1499], 1499);
  });

  it('tells faults and drops', async () => {
    const session = await attach();
    const told = [];
    session.on('fault', (fault) => told.push(fault.message)).on('drops', (drops) => told.push(drops.record));
    await session.compile('reports');
    await session.start();
    assert.deepEqual(told, ['invalid address', 5]);
    assert.equal(session.faults[0].address, MAX);
  });

  it('shares a helper', async () => {
    const helper = await Helper.start();
    const first = await attach({ helper });
    const second = await attach({ helper, records: true });
    await second.compile('records 5 exits');
    await second.start();
    await first.close();
    assert.equal((await all(second)).length, 5);
    assert.equal(helper.version, '0.0-fake');
    await helper.close();
    await assert.rejects(second.snapshot(), failsWith('helper', /closed/));
  });

  it('throws by kind', async () => {
    const session = await attach();
    await assert.rejects(session.compile('a mistake'), (error) => {
      assert.deepEqual([error.kind, error.message], ['compile', '2 mistakes']);
      const { tag, line, column, hint } = error.diagnostics[0];
      assert.deepEqual([tag, line, column, hint], ['SYNTAX', 2, 17, 'a ; is missing']);
      return true;
    });
    await assert.rejects(session.start(), failsWith('state', /no program/));
    await assert.rejects(session.compile('x', { options: { nonsense: true } }), failsWith('protocol', /nonsense/));
    await assert.rejects(Session.attach(1), failsWith('permission', /not yours/));
    await assert.rejects(Session.attach(1), ({ rule }) => rule === 'owner');
    await assert.rejects(Session.attach(2), failsWith('not_found', /no process 2/));
    await assert.rejects(all(session), failsWith('state', /records: true/));
    await session.close();
    await session.close();
    await assert.rejects(session.snapshot(), failsWith('state', /closed/));
  });

  it('says that the helper is missing', async () => {
    const PATH = process.env.PATH;
    try {
      delete process.env.TRAPLINE_COMMAND;
      process.env.PATH = path.join(folder, 'empty');
      await assert.rejects(Session.attach(4711), failsWith('helper', /no trapline/));
      process.env.PATH = `${folder}:${PATH}`;
      await attach();
    } finally {
      process.env.PATH = PATH;
    }
    process.env.TRAPLINE_COMMAND = '/nonexistent/trapline';
    await assert.rejects(Session.attach(4711), failsWith('helper', /cannot run \/nonexistent.*ENOENT/));
    process.env.TRAPLINE_COMMAND = '/bin/false';
    await assert.rejects(Session.attach(4711), failsWith('helper', /status 1/));
  });

  it('refuses another protocol', async () => {
    process.env.FAKE_SERVE_PROTOCOL = '2';
    try {
      await assert.rejects(Session.attach(4711), failsWith('protocol', /protocol 2/));
    } finally {
      delete process.env.FAKE_SERVE_PROTOCOL;
    }
  });

  it('says that the helper died', async () => {
    const session = await attach();
    await session.compile('die');
    await assert.rejects(session.start(), failsWith('helper', /SIGKILL/));
    await assert.rejects(session.snapshot(), failsWith('helper', /SIGKILL/));
  });

  it('says so while records are awaited', async () => {
    const helper = await Helper.start();
    const session = await attach({ helper, records: true });
    const errors = [];
    session.on('error', (error) => errors.push(error.kind));
    await session.compile('records 3');
    await session.start();
    const waited = assert.rejects(session.wait(), failsWith('helper', /SIGKILL/));
    const records = session.records();
    for (let i = 0; i < 3; ++i) assert.equal((await records.next()).done, false);
    process.kill(helper.pid, 'SIGKILL');
    await assert.rejects(records.next(), failsWith('helper', /SIGKILL/));
    await waited;
    assert.deepEqual(errors, ['helper']);
  });

  it('does not take nonsense', async () => {
    const session = await attach();
    await session.compile('garbage');
    await assert.rejects(session.start(), failsWith('helper', /not in the protocol/));
  });

  it('leaves no helper behind', async () => {
    const helper = await Helper.start();
    await helper.close();
    assert.throws(() => process.kill(helper.pid, 0), /ESRCH/);
  });
});

describe('with trapline serve', { skip: realCommand ? false : 'TRAPLINE_TEST_COMMAND is not set' }, () => {
  before(() => {
    process.env.TRAPLINE_COMMAND = realCommand;
  });
  afterEach(closeAll);

  const target = async (name, ...words) => {
    const child = spawn(path.join(targets, name), words, { stdio: ['pipe', 'pipe', 'inherit'] });
    const [line] = await once(child.stdout, 'data');
    assert.equal(`${line}`, 'ready\n');
    return child;
  };

  it('counts exactly in a process that runs', async () => {
    const child = await target('mallocs', '--wait', '4', '1000');
    const session = await tracked(Session.attach(child.pid));
    await session.compile(
      'pid$target::malloc:entry { @calls = count(); @sizes = quantize(arg0); @by[arg0, probefunc] = sum(arg0); }',
    );
    assert.ok((await session.start()).armed >= 1);
    child.stdin.end('\n');
    assert.equal((await session.wait()).reason, 'target');
    const snapshot = await session.snapshot({ text: true });
    assert.deepEqual(snapshot.drops, NO_DROPS);
    assert.equal(snapshot.get('by').get(5000, 'malloc'), 4 * 1000 * 5000);
    const buckets = new Map(snapshot.get('sizes').histogram.map(({ low, count }) => [low, count]));
    assert.deepEqual([4, 16, 64, 4096].map((low) => buckets.get(low)), [4000, 8000, 4000, 4000]);
    assert.match(snapshot.text, /Distribution/);
  });

  it('sends the records of a launched command', async () => {
    const session = await tracked(Session.launch([path.join(targets, 'intargs')], { records: true }));
    await session.compile('pid$target:a.out:take_long:entry { printf("%d", (long)arg0); trace($1); }', {
      arguments: [2n ** 63n - 1n],
    });
    await session.start();
    const got = [];
    for await (const record of session) got.push(record.actions.flatMap(({ values }) => values));
    assert.deepEqual(got, [-5, 0, 1, 8].map((number) => [number, 2n ** 63n - 1n]));
    assert.equal(session.ended.reason, 'target');
  });

  it('traces Node itself where that is allowed', async (test) => {
    let session;
    try {
      session = await tracked(Session.self());
      await session.compile('pid$target:libc:getppid:entry { @calls = count(); }');
      await session.start();
    } catch (error) {
      if (error.kind !== 'permission') throw error;
      test.skip(error.message);
      return;
    }
    assert.equal(session.pid, process.pid);
    for (let i = 0; i < 1000; ++i) void process.ppid;
    await session.stop();
    void process.ppid;
    assert.equal((await session.snapshot()).get('calls').value, 1000);
  });

  it('ends by exit() and says mistakes', async () => {
    const child = await target('ticker');
    const session = await tracked(Session.attach(child.pid));
    await assert.rejects(session.compile('pid$target:a.out:tick:entry { @a = count(; }', { name: 'mine' }), (error) => {
      assert.deepEqual([error.kind, error.diagnostics[0].file, error.diagnostics[0].line], ['compile', 'mine', 1]);
      return true;
    });
    await session.compile('pid$target:a.out:tick:entry { exit(3); }');
    await session.start();
    const { reason, status } = await session.wait();
    assert.deepEqual([reason, status], ['exit', 3]);
    assert.equal(child.exitCode, null);
    child.stdin.end('\n');
  });

  it('runs the example', () => {
    const done = spawnSync(process.execPath, [path.join(__dirname, '..', 'example.js'), 'ls', '/'], { encoding: 'utf8' });
    assert.equal(done.status, 0, done.stderr);
    assert.match(done.stdout, /calls of malloc: \d+\n(.*\n)*\d+\.\.\d+: \d+/);
  });
});
