/// <reference types="node" />
import { EventEmitter } from 'node:events';

/** Exact: a number up to 2^53 in magnitude, else a BigInt. */
export type Integer = number | bigint;
/** A Buffer is data without a type, or a string that is not UTF-8. */
export type Value = Integer | string | Buffer;
/** Text; a Buffer where it is not UTF-8. */
export type Text = string | Buffer;

/** A bin of a histogram: its least and greatest value, both included (null: no bound), and how many fell into it. */
export interface Bucket {
  low: Integer | null;
  high: Integer | null;
  count: Integer;
}

/** The value of avg(). */
export interface Average {
  count: Integer;
  sum: Integer;
}

/** The value of stddev(); `squares` is the sum of the squares. */
export interface Deviation extends Average {
  squares: Integer;
}

export type Datum = Integer | Average | Deviation | Bucket[];

export type ErrorKind =
  | 'compile'
  | 'state'
  | 'permission'
  | 'not_found'
  | 'gone'
  | 'unsupported'
  | 'os'
  | 'internal'
  | 'protocol'
  | 'helper';

export interface Diagnostic {
  severity: 'error' | 'warning';
  tag: string;
  file: string;
  /** Lines and columns (in bytes) from 1; 0: about the program as a whole. */
  line: number;
  column: number;
  text: string;
  hint?: string;
}

/** What the helper refused or could not do. `helper`: it is missing, or has ended; the traced process goes on. */
export class TraplineError extends Error {
  readonly kind: ErrorKind;
  /** Of the kind `compile`: all mistakes. */
  readonly diagnostics: Diagnostic[];
  /** Of the kind `permission`. */
  readonly rule?: 'owner' | 'yama' | 'tracer' | 'other';
}

export class Aggregation implements Iterable<{ key: Value[]; value: Datum }> {
  readonly name: string;
  readonly function: string;
  /** The divisor that normalize() set; values are not divided. */
  readonly normal: Integer;
  /** One for each component of the key. */
  readonly types: Array<'int' | 'uint' | 'string' | 'bytes'>;
  /** In the order in which the command prints them. */
  readonly entries: Array<{ key: Value[]; value: Datum }>;
  /** Without keys; else throws a TypeError. Nothing seen yet: 0 for count() and sum(), else undefined or no bucket. */
  get value(): Datum | undefined;
  /** The buckets of a histogram without keys, ascending; empty ones are left out. */
  get histogram(): Bucket[];
  /** The value of a key. */
  get(...key: Value[]): Datum | undefined;
  [Symbol.iterator](): Iterator<{ key: Value[]; value: Datum }>;
}

/** Losses so far, by kind. All zero: nothing was lost. `client`: records that were not taken in time. */
export interface Drops {
  record: Integer;
  aggregation: Integer;
  dynamic: Integer;
  speculation: Integer;
  speculative: Integer;
  level: Integer;
  no_slot: Integer;
  samples: Integer;
  malformed: Integer;
  client: Integer;
}

/** All aggregations at one moment. */
export class Snapshot implements Iterable<Aggregation> {
  readonly aggregations: Aggregation[];
  readonly drops: Drops;
  readonly state: 'compiled' | 'running' | 'stopped' | 'ended';
  /** What the command would print, where it was asked for. */
  readonly text?: Text;
  get(name: string): Aggregation | undefined;
  [Symbol.iterator](): Iterator<Aggregation>;
}

export interface Probe {
  id: number;
  provider: Text;
  module: Text;
  function: Text;
  name: Text;
}

/** One thing that a clause recorded: arguments, what printf() made of them, the aggregations of printa(). */
export interface Action {
  kind: 'trace' | 'printf' | 'printa' | 'exit';
  text: Text;
  values: Value[];
  aggregations: Aggregation[];
}

/** What one firing recorded. `time` is CLOCK_MONOTONIC, in nanoseconds. */
export interface Record {
  probe: Probe;
  cpu: number;
  tid: number;
  time: Integer;
  actions: Action[];
}

/** A clause that was given up, for instance because it read memory that is not there. */
export interface Fault {
  probe: Probe;
  fault: number;
  address: Integer;
  message: Text;
}

/** Why a session ended by itself: the program's exit(status), the process's end, an error. */
export interface Ended {
  reason: 'exit' | 'target' | 'error';
  status: number;
  text: Text;
}

export interface Compiled {
  matched: number;
  diagnostics: Diagnostic[];
  notes: string[];
}

export interface Started {
  armed: number;
  /** Places that could not be probed, and why. */
  refused: Array<{ probe: string; address: Integer; reason: string; detail: string }>;
  notes: string[];
}

/** A running `trapline serve`. Sessions start one each unless they are given one to share. */
export class Helper {
  /** `command`: the trapline to run instead of the one that TRAPLINE_COMMAND names or PATH has. */
  static start(command?: string): Promise<Helper>;
  private constructor();
  readonly pid: number | undefined;
  readonly version: string;
  /** Ends it; all its processes are then as they were. */
  close(): Promise<void>;
}

export interface SessionOptions {
  /** Whether what clauses record (printf() and the like) is sent. */
  records?: boolean;
  /** A command launched in a shared one reads and writes /dev/null instead of Node's standard input and output. */
  helper?: Helper;
}

export interface CompileOptions {
  /** $1, $2, ... of the program. */
  arguments?: Array<string | Integer>;
  options?: { [name: string]: string | number | boolean };
  /** Stands in diagnostics. */
  name?: string;
}

/** A process and a D program in it. Keeps Node running until close(). */
export class Session extends EventEmitter implements AsyncIterable<Record> {
  /** This very process. Where Yama is on, it cannot be traced: an error of the kind `permission`. */
  static self(options?: SessionOptions): Promise<Session>;
  /** A process that runs. */
  static attach(pid: number, options?: SessionOptions): Promise<Session>;
  /** A new process (a command line, or its words), whose main() waits for start(). */
  static launch(command: string | readonly string[], options?: SessionOptions): Promise<Session>;
  private constructor();
  readonly pid: number;
  /** The last 1024. */
  readonly notes: Text[];
  /** The last 1024. */
  readonly faults: Fault[];
  readonly drops: Drops;
  readonly ended: Ended | null;
  /** Only while stopped. */
  compile(text: string, options?: CompileOptions): Promise<Compiled>;
  /** When it resolves, probes count. After stop() it goes on into the same aggregations. */
  start(): Promise<Started>;
  /** When it resolves, the process is as it was, and all that was counted can be read. */
  stop(): Promise<string[]>;
  /** Each firing that had ended when it was asked for. */
  snapshot(options?: { text?: boolean }): Promise<Snapshot>;
  clear(): Promise<void>;
  /** What clauses recorded, as it comes, unless somebody listens to `record`. Ends when tracing has. */
  records(): AsyncGenerator<Record, void, undefined>;
  [Symbol.asyncIterator](): AsyncGenerator<Record, void, undefined>;
  /** Until tracing ended by itself, or was stopped (null). */
  wait(): Promise<Ended | null>;
  close(): Promise<void>;
  on(event: 'record', listener: (record: Record) => void): this;
  on(event: 'fault', listener: (fault: Fault) => void): this;
  on(event: 'drops', listener: (drops: Drops) => void): this;
  on(event: 'note', listener: (text: Text) => void): this;
  on(event: 'ended', listener: (ended: Ended) => void): this;
  /** The helper has ended while the session ran. */
  on(event: 'error', listener: (error: TraplineError) => void): this;
}

export const version: string;
