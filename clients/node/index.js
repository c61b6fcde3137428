// Trapline from Node: D programs in processes one owns, and their aggregations and records as JavaScript values.
//
// A helper process, `trapline serve`, does the work; this module speaks its protocol (docs/protocol.md) over its
// standard input and output. It is found by TRAPLINE_COMMAND or else on PATH. One class each for the helper
// (Helper: requests, answers, its end) and for what is traced (Session). index.d.ts says what each call takes and
// gives.
//
// Integers up to 2^53 in magnitude are numbers, greater ones BigInt, both exact. Strings that are no UTF-8 are Buffers.
//
// Session.self() needs no native code: Node makes the pipes of a child as a pair of unix sockets, whose peer the helper
// asks the kernel for. But a process cannot say from JavaScript who may trace it, so where Yama is on
// (kernel.yama.ptrace_scope is 1) self() and attach() are refused with an error of the kind `permission`, unless the
// helper is root; launch() works.

'use strict';

const { spawn } = require('node:child_process');
const { EventEmitter } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');

const version = require('./package.json').version;

const PROTOCOL = 1;
const RESERVED_CODES = -32600; // those of JSON-RPC itself are at most this
const END_MILLISECONDS = 10000; // how long a helper may take to leave its processes as they were
const UNREAD_RECORDS = 1 << 20; // records nobody has taken yet; later ones are counted as drops.client
const UNREAD_REPORTS = 1024; // notes and faults that are kept

/** What was refused or could not be done. `kind`: as in docs/protocol.md, or `helper`: it is missing, or has ended. */
class TraplineError extends Error {
  constructor(kind, message, { diagnostics = [], rule = undefined } = {}) {
    super(message);
    this.name = 'TraplineError';
    this.kind = kind;
    this.diagnostics = diagnostics;
    if (rule !== undefined) this.rule = rule;
  }
}

// Decoding.

function value(data) {
  if (data === null || typeof data !== 'object') return data;
  if (data.hex !== undefined) return Buffer.from(data.hex, 'hex');
  const exact = BigInt(data.integer);
  return exact >= -(2n ** 53n) && exact <= 2n ** 53n ? Number(exact) : exact;
}

function datum(name, data) {
  if (name === 'avg') return { count: value(data.count), sum: value(data.sum) };
  if (name === 'stddev') return { count: value(data.count), sum: value(data.sum), squares: value(data.squares) };
  if (Array.isArray(data)) {
    return data.map((bin) => ({ low: value(bin.low), high: value(bin.high), count: value(bin.count) }));
  }
  return value(data);
}

const isHistogram = (name) => name.endsWith('quantize');

function sameValue(a, b) {
  if (Buffer.isBuffer(a) || Buffer.isBuffer(b)) return Buffer.isBuffer(a) && Buffer.isBuffer(b) && a.equals(b);
  // 5 and 5n are the same integer; a string is never one.
  return typeof a === 'string' || typeof b === 'string' ? a === b : BigInt(a) === BigInt(b);
}

class Aggregation {
  constructor(data) {
    this.name = data.name;
    this.function = data.function;
    this.normal = value(data.normal);
    this.types = data.types ?? [];
    this.entries = data.entries.map((entry) => ({
      key: entry.key.map(value),
      value: datum(data.function, entry.value),
    }));
  }

  get value() {
    if (this.types.length > 0 || this.entries.some((entry) => entry.key.length > 0)) {
      throw new TypeError(`@${this.name} has keys: look at its entries, or use get()`);
    }
    if (this.entries.length > 0) return this.entries[0].value;
    if (this.function === 'count' || this.function === 'sum') return 0;
    return isHistogram(this.function) ? [] : undefined;
  }

  get histogram() {
    if (!isHistogram(this.function)) throw new TypeError(`@${this.name} is a ${this.function}(), not a histogram`);
    return this.value;
  }

  get(...key) {
    const same = (entry) => entry.key.length === key.length && entry.key.every((part, i) => sameValue(part, key[i]));
    return this.entries.find(same)?.value;
  }

  [Symbol.iterator]() {
    return this.entries[Symbol.iterator]();
  }
}

class Snapshot {
  constructor(data, lost) {
    this.aggregations = data.aggregations.map((aggregation) => new Aggregation(aggregation));
    this.drops = drops(data.drops, lost);
    this.state = data.state;
    this.text = value(data.text);
  }

  get(name) {
    return this.aggregations.find((aggregation) => aggregation.name === name);
  }

  [Symbol.iterator]() {
    return this.aggregations[Symbol.iterator]();
  }
}

function drops(data, lost) {
  const result = {};
  for (const kind of ['record', 'aggregation', 'dynamic', 'speculation', 'speculative', 'level', 'no_slot', 'samples',
    'malformed', 'client']) {
    result[kind] = value(data[kind] ?? 0);
  }
  result.client += typeof result.client === 'bigint' ? BigInt(lost) : lost;
  return result;
}

function probe(data) {
  const { id, provider, module, function: name, name: point } = data;
  return { id, provider: value(provider), module: value(module), function: value(name), name: value(point) };
}

function action(data) {
  const kind = ['printf', 'printa', 'trace', 'exit'].find((name) => name in data) ?? Object.keys(data)[0];
  if (kind === 'printf') return { kind, text: value(data.printf), values: data.values.map(value), aggregations: [] };
  if (kind === 'printa') {
    return { kind, text: '', values: [], aggregations: data.printa.map((entry) => new Aggregation(entry)) };
  }
  return { kind, text: '', values: [value(data[kind])], aggregations: [] };
}

function record(data) {
  const actions = data.actions.map(action);
  return { probe: probe(data.probe), cpu: data.cpu, tid: data.tid, time: value(data.time), actions };
}

// The helper.

function findCommand() {
  if (process.env.TRAPLINE_COMMAND) return process.env.TRAPLINE_COMMAND;
  for (const folder of (process.env.PATH ?? '').split(path.delimiter)) {
    const file = path.join(folder || '.', 'trapline');
    try {
      fs.accessSync(file, fs.constants.X_OK);
      if (fs.statSync(file).isFile()) return file;
    } catch {
      // not there: look on
    }
  }
  throw new TraplineError('helper', 'no trapline: TRAPLINE_COMMAND is not set, and PATH has none');
}

class Helper {
  #child;
  #end = null; // why nothing more comes
  #gone;
  #nextId = 1;
  #pending = new Map(); // id -> {resolve, reject}
  #sessions = new Map();
  #pieces = []; // of a line whose end has not come yet

  /** Starts `trapline serve`. */
  static start(command = undefined) {
    return Helper._start(command, []);
  }

  // `streams`: descriptors of this process that it gets as 3, 4, ...
  static async _start(command, streams) {
    const helper = new Helper(command ?? findCommand(), streams);
    try {
      const answer = await helper._call('initialize', { protocol: PROTOCOL, client: `node ${version}` });
      if (answer.protocol !== PROTOCOL) {
        throw new TraplineError('protocol', `the helper speaks protocol ${answer.protocol}, not ${PROTOCOL}`);
      }
      helper.version = answer.version;
      return helper;
    } catch (error) {
      await helper.close();
      if (error.kind !== 'unsupported') throw error;
      throw new TraplineError('protocol', `${error.message}; this module speaks ${PROTOCOL}`);
    }
  }

  constructor(command, streams) {
    this.version = '';
    // Detached, in a session of its own: Ctrl-C must not end it before this process has said stop.
    this.#child = spawn(command, ['serve'], { stdio: ['pipe', 'pipe', 'inherit', ...streams], detached: true });
    this.pid = this.#child.pid;
    this.#gone = new Promise((resolve) => {
      this.#child.on('error', (error) => {
        this.#fail(`cannot run ${command}: ${error.message}`);
        resolve();
      });
      this.#child.on('close', (status, signal) => {
        this.#fail(signal ? `killed by signal ${signal}` : `it ended with status ${status}`);
        resolve();
      });
    });
    this.#child.stdin.on('error', () => {}); // `close` says what happened
    this.#child.stdout.on('error', () => {});
    this.#child.stdout.on('data', (data) => this.#read(data));
  }

  /** Ends the helper, which leaves all its processes as they were. */
  async close() {
    this.#fail('it has been closed');
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), END_MILLISECONDS);
    await this.#gone;
    clearTimeout(timer);
  }

  get _ended() {
    return this.#end === null ? null : new TraplineError('helper', `trapline serve is gone: ${this.#end}`);
  }

  // `then` is done with the answer at once, before what comes after it is looked at.
  _call(method, parameters, then = (result) => result) {
    return new Promise((resolve, reject) => {
      if (this.#end !== null) {
        reject(this._ended);
        return;
      }
      const id = this.#nextId++;
      const take = (result) => {
        try {
          resolve(then(result));
        } catch (error) {
          reject(new TraplineError('protocol', `the helper answered what is not in the protocol (${error.message})`));
        }
      };
      this.#pending.set(id, { resolve: take, reject });
      this.#child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params: parameters })}\n`);
    });
  }

  _add(number, session) {
    this.#sessions.set(number, session);
  }

  _remove(number) {
    this.#sessions.delete(number);
  }

  #fail(why) {
    if (this.#end !== null) return;
    this.#end = why;
    for (const { reject } of this.#pending.values()) reject(this._ended);
    this.#pending.clear();
    for (const session of this.#sessions.values()) session._helperEnded();
  }

  #read(data) {
    let from = 0;
    for (let at = data.indexOf(10); at !== -1; at = data.indexOf(10, from)) {
      this.#pieces.push(data.subarray(from, at));
      from = at + 1;
      const line = Buffer.concat(this.#pieces).toString();
      this.#pieces = [];
      try {
        this.#take(JSON.parse(line));
      } catch (error) {
        this.#fail(`it sent what is not in the protocol (${error.message})`);
        this.#child.stdin.end();
        return;
      }
    }
    if (from < data.length) this.#pieces.push(data.subarray(from));
  }

  #take(message) {
    if (message.method !== undefined) {
      this.#sessions.get(message.params?.session)?._take(message.method, message.params);
      return;
    }
    const waiting = this.#pending.get(message.id);
    if (waiting === undefined) {
      if (message.id === null) this.#fail(`it did not understand a call: ${message.error?.message}`);
      return;
    }
    this.#pending.delete(message.id);
    if (message.error === undefined) {
      waiting.resolve(message.result);
    } else {
      const { code, message: text, data } = message.error;
      const kind = code > RESERVED_CODES && data?.kind ? data.kind : 'protocol';
      waiting.reject(new TraplineError(kind, text, data ?? {}));
    }
  }
}

// Sessions.

class Session extends EventEmitter {
  notes = [];
  faults = [];
  ended = null;
  drops = drops({}, 0);
  #helper;
  #ownsHelper;
  #wantsRecords;
  #number = null;
  #queue = []; // records nobody has taken; from #first on
  #first = 0;
  #lost = 0;
  #running = false;
  #closing = null;
  #waiting = new Set(); // called when something has changed

  static self(options = {}) {
    return Session.#open({ self: true }, options);
  }

  static attach(pid, options = {}) {
    return Session.#open({ pid }, options);
  }

  static launch(command, options = {}) {
    return Session.#open(typeof command === 'string' ? { command } : { argv: [...command] }, options);
  }

  static async #open(target, { records = false, helper = undefined } = {}) {
    // A command gets the standard input, output and error of this process, unless the helper is shared.
    const streams = helper === undefined && (target.argv || target.command) ? [0, 1, 2] : [];
    const used = helper ?? (await Helper._start(undefined, streams));
    const session = new Session(used, helper === undefined, records);
    try {
      const take = (answer) => {
        session.#number = answer.session;
        session.pid = answer.pid;
        used._add(answer.session, session);
      };
      const parameters = { target, records: records ? 'push' : 'none' };
      if (streams.length > 0) parameters.stdio = [3, 4, 5];
      await used._call('open', parameters, take);
      return session;
    } catch (error) {
      if (helper === undefined) await used.close();
      throw error;
    }
  }

  /** Use self(), attach() or launch(). */
  constructor(helper, ownsHelper, wantsRecords) {
    super();
    this.#helper = helper;
    this.#ownsHelper = ownsHelper;
    this.#wantsRecords = wantsRecords;
    // What was recorded before somebody listened is told first.
    this.on('newListener', (name) => {
      if (name === 'record') queueMicrotask(() => this.#emitQueued());
    });
  }

  async compile(text, { arguments: words = [], options = {}, name = 'program' } = {}) {
    const answer = await this.#call('compile', { text, name, arguments: words.map(String), options });
    return { matched: answer.matched, diagnostics: answer.diagnostics, notes: answer.notes };
  }

  async start() {
    const before = { ended: this.ended, running: this.#running };
    this.ended = null;
    this.#running = true;
    try {
      const answer = await this.#call('start', {});
      const refused = answer.refused.map((place) => ({ ...place, address: value(place.address) }));
      return { armed: answer.armed, refused, notes: answer.notes };
    } catch (error) {
      this.ended ??= before.ended;
      this.#running = before.running;
      throw error;
    }
  }

  async stop() {
    const answer = await this.#call('stop', {}, (result) => {
      this.#running = false;
      this.#wake();
      return result;
    });
    return answer.notes;
  }

  snapshot({ text = false } = {}) {
    return this.#call('snapshot', { text }, (answer) => {
      const snapshot = new Snapshot(answer, this.#lost);
      this.drops = snapshot.drops;
      return snapshot;
    });
  }

  async clear() {
    await this.#call('clear', {});
  }

  /** What clauses recorded, as it comes; ends when tracing has. */
  async *records() {
    if (!this.#wantsRecords) {
      throw new TraplineError('state', 'records were not asked for: open the session with {records: true}');
    }
    for (;;) {
      const next = this.#shift();
      if (next !== undefined) {
        yield next;
      } else if (!this.#running) {
        return;
      } else {
        if (this.#helper._ended) throw this.#helper._ended;
        await this.#change();
      }
    }
  }

  [Symbol.asyncIterator]() {
    return this.records();
  }

  /** Waits until tracing ended by itself, or was stopped (null). */
  async wait() {
    while (this.#running) {
      if (this.#helper._ended) throw this.#helper._ended;
      await this.#change();
    }
    return this.ended;
  }

  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    const finish = () => {
      this.#running = false;
      this.#helper._remove(this.#number);
      this.#wake();
    };
    try {
      if (!this.#helper._ended) await this.#helper._call('close', { session: this.#number }, finish);
    } catch (error) {
      if (error.kind !== 'helper') throw error;
    } finally {
      finish();
      if (this.#ownsHelper) await this.#helper.close();
    }
  }

  #call(method, parameters, then = undefined) {
    if (this.#closing) return Promise.reject(new TraplineError('state', 'the session has been closed'));
    return this.#helper._call(method, { session: this.#number, ...parameters }, then);
  }

  _helperEnded() {
    this.#wake();
    // Calls fail with it; whoever only listens may listen to this, too.
    if (this.#running && this.listenerCount('error') > 0) this.#tell('error', this.#helper._ended);
  }

  // What a listener throws is uncaught, as it would be from any other emitter; it is no fault of the helper's.
  #tell(name, what) {
    try {
      this.emit(name, what);
    } catch (error) {
      process.nextTick(() => {
        throw error;
      });
    }
  }

  // A notification.
  _take(method, parameters) {
    switch (method) {
      case 'records':
        this.#takeRecords(parameters.records);
        break;
      case 'fault':
        this.#report(this.faults, 'fault', {
          probe: probe(parameters.probe),
          fault: parameters.fault,
          address: value(parameters.address),
          message: value(parameters.message),
        });
        break;
      case 'drops':
        this.drops = drops(parameters.drops, this.#lost);
        this.#tell('drops', this.drops);
        break;
      case 'note':
        this.#report(this.notes, 'note', value(parameters.text));
        break;
      case 'ended':
        this.ended = { reason: parameters.reason, status: parameters.status ?? 0, text: value(parameters.text ?? '') };
        this.#running = false;
        this.#wake();
        this.#tell('ended', this.ended);
        break;
      default: // of a later version
    }
  }

  #takeRecords(list) {
    for (const data of list) {
      if (this.#queue.length - this.#first < UNREAD_RECORDS) {
        this.#queue.push(record(data));
      } else {
        this.#lost += 1;
        this.drops.client += typeof this.drops.client === 'bigint' ? 1n : 1;
      }
    }
    this.#emitQueued();
    this.#wake();
  }

  #emitQueued() {
    while (this.listenerCount('record') > 0) {
      const next = this.#shift();
      if (next === undefined) return;
      this.#tell('record', next);
    }
  }

  #shift() {
    if (this.#first === this.#queue.length) return undefined;
    const next = this.#queue[this.#first];
    this.#queue[this.#first++] = undefined;
    if (this.#first === this.#queue.length || this.#first > 10000) {
      this.#queue = this.#queue.slice(this.#first);
      this.#first = 0;
    }
    return next;
  }

  #report(list, name, what) {
    list.push(what);
    if (list.length > UNREAD_REPORTS) list.shift();
    this.#tell(name, what);
  }

  #change() {
    return new Promise((resolve) => this.#waiting.add(resolve));
  }

  #wake() {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}

module.exports = { Aggregation, Helper, Session, Snapshot, TraplineError, version };
