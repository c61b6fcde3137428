/**
 * @file trapline.h
 * Tracing from within a program: the C interface of libtrapline (C99, C++98 and later).
 *
 * A session traces one process: the one that calls (trapline_session_self()), another one
 * (trapline_session_attach()) or one that it starts (trapline_session_launch()). It is given a D
 * program, started, stopped and asked for snapshots of its aggregations, as often as wanted.
 *
 * The work is done by a helper process, `trapline serve`, one for each session, which the library
 * starts and which ends with the session. It is the program that the environment variable
 * TRAPLINE_COMMAND names; else the `trapline` that was installed with the library; else the first
 * one in PATH. (In set-user-ID programs the environment is not asked.) TRAPLINE_DEBUG, when set to
 * something, lets the helper's messages through to standard error.
 *
 * - **Errors.** Functions that can fail return a ::trapline_error; trapline_error_text() says more.
 *   An out parameter is set to NULL when its function fails, except where stated.
 * - **Threads.** Every function may be called from any thread; calls on one session wait for each
 *   other. Snapshots and reports never change: any number of threads may read one. Nothing may be
 *   called from a signal handler, and a handler that interrupts a call must not leave it by
 *   longjmp() nor throw. No function is a cancellation point.
 * - **Lifetime.** What a function hands out by an out parameter is the caller's and is given back
 *   by the destroy function of its type. Pointers that accessors return lie within the object that
 *   was asked: valid until it is destroyed, not to be freed. Accessors do not allocate.
 * - **Strings.** Text is UTF-8. A ::trapline_string always ends in a NUL that its size does not
 *   count; where it stands for bytes of the traced process it may contain others.
 * - **Counting.** What the library itself calls (malloc(), poll(), ...) while it works is never
 * seen by a session of the same process. While it waits for the helper, signals are delivered as
 * ever, and what their handlers call is seen.
 * - **fork().** A session belongs to the process that made it. In a forked child every call gives
 *   TRAPLINE_ERROR_FORKED, and trapline_session_destroy() frees the memory without touching the
 *   parent's session.
 *
 * docs/library.md has the whole picture, with costs.
 */

#ifndef TRAPLINE_TRAPLINE_H
#define TRAPLINE_TRAPLINE_H

#include <stddef.h>
#include <stdint.h>

/** Declares a function that libtrapline exports. */
#if defined(__GNUC__) || defined(__clang__)
#define TRAPLINE_API __attribute__((visibility("default")))
#else
#define TRAPLINE_API
#endif

/** Version of this header, major part: changes with every incompatible change. */
#define TRAPLINE_VERSION_MAJOR 0
/** Version of this header, minor part. */
#define TRAPLINE_VERSION_MINOR 1
/** Version of this header, patch level. */
#define TRAPLINE_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/** A traced process and the program it is traced with. Opaque. */
typedef struct trapline_session trapline_session;
/** All aggregations at one moment. Opaque, immutable. */
typedef struct trapline_snapshot trapline_snapshot;
/** One aggregation of a snapshot or of a printa() record. Opaque, immutable. */
typedef struct trapline_aggregation trapline_aggregation;
/** One key of an aggregation with its value. Opaque, immutable. */
typedef struct trapline_entry trapline_entry;
/** One thing that a session has to tell: a firing's data, a fault, lost data, the end. Opaque. */
typedef struct trapline_record trapline_record;
/** What compiling, starting or stopping had to say. Opaque, immutable. */
typedef struct trapline_report trapline_report;

/** What went wrong. */
typedef enum trapline_error {
  TRAPLINE_OK = 0,                /**< Nothing. */
  TRAPLINE_ERROR_ARGUMENT = 1,    /**< An argument is NULL, out of range or not UTF-8. */
  TRAPLINE_ERROR_COMPILE = 2,     /**< The D program has mistakes; the report has them as data. */
  TRAPLINE_ERROR_STATE = 3,       /**< Not now: no program yet, already running, not running. */
  TRAPLINE_ERROR_PERMISSION = 4,  /**< The process may not be traced; the text names the rule. */
  TRAPLINE_ERROR_YAMA = 5,        /**< As before; the rule is Yama's (kernel.yama.ptrace_scope). */
  TRAPLINE_ERROR_BUSY_TRACER = 6, /**< As before; a debugger or another tracer holds the process. */
  TRAPLINE_ERROR_NOT_FOUND = 7,   /**< No such process, file, aggregation or key. */
  TRAPLINE_ERROR_TARGET_GONE = 8, /**< The traced process has ended. */
  TRAPLINE_ERROR_UNSUPPORTED = 9, /**< Understood, and not offered (yet). */
  TRAPLINE_ERROR_OS = 10,         /**< A system call failed; the text says which and why. */
  TRAPLINE_ERROR_MEMORY = 11,     /**< Out of memory. */
  TRAPLINE_ERROR_NO_HELPER = 12,  /**< The helper was not found or cannot be executed. */
  TRAPLINE_ERROR_HELPER_GONE = 13, /**< The helper has ended; the session is of no more use. */
  TRAPLINE_ERROR_PROTOCOL = 14,    /**< The helper speaks another protocol, or nonsense. */
  TRAPLINE_ERROR_TIMEOUT = 15,     /**< A bounded wait ran out; see each function. */
  TRAPLINE_ERROR_FORKED = 16,      /**< The session belongs to this process's parent. */
  TRAPLINE_ERROR_TYPE = 17,        /**< The value is of another kind than the one asked for. */
  TRAPLINE_ERROR_INTERNAL = 18     /**< A fault of Trapline's own. */
} trapline_error;

/** Text, or bytes of the traced process. */
typedef struct trapline_string {
  const char* data; /**< Never NULL; data[size] is NUL. */
  size_t size;      /**< In bytes. */
} trapline_string;

/** What a ::trapline_value holds. */
typedef enum trapline_value_type {
  TRAPLINE_VALUE_INT = 0,    /**< A signed integer of 64 bits. */
  TRAPLINE_VALUE_UINT = 1,   /**< An unsigned integer of 64 bits. */
  TRAPLINE_VALUE_STRING = 2, /**< A string as D has them; normally text. */
  TRAPLINE_VALUE_BYTES = 3   /**< Data without a type. */
} trapline_value_type;

/** A component of a key, a datum, or one value that a clause recorded. */
typedef struct trapline_value {
  trapline_value_type type; /**< Which of the members counts. */
  int64_t integer;          /**< INT: the value. UINT: its 64 bits (cast to uint64_t). Else 0. */
  trapline_string bytes;    /**< STRING, BYTES: the content. Else empty. */
} trapline_value;

/** One bin of a histogram. */
typedef struct trapline_bucket {
  int64_t low;   /**< Least value of the bin; INT64_MIN: no bound. */
  int64_t high;  /**< Greatest value of the bin, included; INT64_MAX: no bound. */
  int64_t count; /**< What was counted in it; never 0. */
} trapline_bucket;

/** What avg() and stddev() keep. */
typedef struct trapline_statistics {
  uint64_t count;        /**< How many values. */
  int64_t sum;           /**< Their sum (modulo 2^64). */
  uint64_t squares_high; /**< Sum of their squares, upper 64 of 128 bits; 0 for avg(). */
  uint64_t squares_low;  /**< Sum of their squares, lower 64 of 128 bits; 0 for avg(). */
} trapline_statistics;

/** Lost data, by the place of the loss. All zero: nothing was lost. */
typedef struct trapline_drops {
  uint64_t record;      /**< Records: the traced process's buffer was full (option bufsize). */
  uint64_t aggregation; /**< Updates of aggregations: its table was full (option aggsize). */
  uint64_t dynamic;     /**< Assignments to associative arrays (option dynvarsize). */
  uint64_t speculation; /**< Calls of speculation() that found none free (option nspec). */
  uint64_t speculative; /**< Speculative records: no room for more (option specsize). */
  uint64_t level;       /**< Firings: signal handlers were nested too deeply. */
  uint64_t no_slot;     /**< Firings: too many threads at once. */
  uint64_t samples;     /**< Firings of profile probes: not sampled where they should have been. */
  uint64_t malformed;   /**< Records that the traced process had overwritten. */
  uint64_t client;      /**< Records that this program did not take in time. */
} trapline_drops;

/** How serious a diagnostic is. */
typedef enum trapline_severity {
  TRAPLINE_SEVERITY_ERROR = 0,  /**< The program was refused. */
  TRAPLINE_SEVERITY_WARNING = 1 /**< The program runs. */
} trapline_severity;

/** A mistake in a D program, or a warning about it. */
typedef struct trapline_diagnostic {
  trapline_severity severity; /**< Error or warning. */
  uint32_t line;              /**< From 1; 0: about the program as a whole. */
  uint32_t column;            /**< In bytes from 1; 0: about the line as a whole. */
  trapline_string tag;        /**< DTrace's tag without "D_", as SYNTAX; may be empty. */
  trapline_string file;       /**< The program's name, or of a file that it includes. */
  trapline_string text;       /**< The mistake, in one line. */
  trapline_string hint;       /**< What to do about it; may be empty. */
} trapline_diagnostic;

/** A place that matched but could not be probed. It does not count; all others do. */
typedef struct trapline_refusal {
  trapline_string probe;  /**< As "pid4711:libc.so.6:f:entry". */
  uint64_t address;       /**< In the traced process. */
  trapline_string reason; /**< Short and the same for all refusals of a kind. */
  trapline_string detail; /**< More about this one; may be empty. */
} trapline_refusal;

/** The probe that a record is about. */
typedef struct trapline_probe {
  uint32_t id;              /**< As the variable id in D. */
  trapline_string provider; /**< As "pid4711". */
  trapline_string module;   /**< As "libc.so.6". */
  trapline_string function; /**< As "malloc". */
  trapline_string name;     /**< As "entry". */
} trapline_probe;

/** What a probe's clause did: see ::trapline_action. */
typedef enum trapline_action_kind {
  TRAPLINE_ACTION_TRACE = 0,  /**< trace() and its like: `value`. */
  TRAPLINE_ACTION_PRINTF = 1, /**< printf(): `text` and `values`. */
  TRAPLINE_ACTION_PRINTA = 2, /**< printa(): `aggregations`. */
  TRAPLINE_ACTION_EXIT = 3    /**< exit(): `value` is the status. */
} trapline_action_kind;

/** One recording action of a firing. */
typedef struct trapline_action {
  trapline_action_kind kind;                       /**< Which of the members count. */
  trapline_value value;                            /**< TRACE, EXIT. */
  trapline_string text;                            /**< PRINTF: what the command would print. */
  const trapline_value* values;                    /**< PRINTF: the arguments after the format. */
  size_t value_count;                              /**< How many `values`. */
  const trapline_aggregation* const* aggregations; /**< PRINTA: as they were at that moment. */
  size_t aggregation_count;                        /**< How many `aggregations`. */
} trapline_action;

/** What a ::trapline_record tells. */
typedef enum trapline_record_kind {
  TRAPLINE_RECORD_FIRING = 0, /**< A clause recorded data. Only with TRAPLINE_RECORDS. */
  TRAPLINE_RECORD_FAULT = 1,  /**< A clause was given up, as it read a bad address, ... */
  TRAPLINE_RECORD_DROPS = 2,  /**< Data was lost since the last record of this kind. */
  TRAPLINE_RECORD_NOTE = 3,   /**< Something that a user should know. */
  TRAPLINE_RECORD_ENDED = 4   /**< Tracing is over, by itself; the session can be asked on. */
} trapline_record_kind;

/** Why tracing is over. */
typedef enum trapline_end_reason {
  TRAPLINE_END_EXIT = 0,   /**< The D program called exit(). */
  TRAPLINE_END_TARGET = 1, /**< The traced process has ended. */
  TRAPLINE_END_ERROR = 2   /**< Tracing failed; the record's text says how. */
} trapline_end_reason;

/** What a session is doing. */
typedef enum trapline_state {
  TRAPLINE_STATE_COMPILED = 0, /**< It has a program that has not been started. */
  TRAPLINE_STATE_RUNNING = 1,  /**< Probes are in place and count. */
  TRAPLINE_STATE_STOPPED = 2,  /**< Stopped; it can be started again. */
  TRAPLINE_STATE_ENDED = 3     /**< Over by itself; see ::trapline_end_reason. */
} trapline_state;

/** What an aggregation computes. */
typedef enum trapline_function {
  TRAPLINE_FUNCTION_COUNT = 0,     /**< count() */
  TRAPLINE_FUNCTION_SUM = 1,       /**< sum() */
  TRAPLINE_FUNCTION_MIN = 2,       /**< min() */
  TRAPLINE_FUNCTION_MAX = 3,       /**< max() */
  TRAPLINE_FUNCTION_AVG = 4,       /**< avg() */
  TRAPLINE_FUNCTION_STDDEV = 5,    /**< stddev() */
  TRAPLINE_FUNCTION_QUANTIZE = 6,  /**< quantize() */
  TRAPLINE_FUNCTION_LQUANTIZE = 7, /**< lquantize() */
  TRAPLINE_FUNCTION_LLQUANTIZE = 8 /**< llquantize() */
} trapline_function;

/** A D option, as `bufsize` = `8m` or `zdefs`. */
typedef struct trapline_option {
  const char* name;  /**< Its name. */
  const char* value; /**< Its value; NULL for one that is only switched on. */
} trapline_option;

/**
 * A D program with all that may go with it, for trapline_session_compile_program(). Start from
 * TRAPLINE_PROGRAM_INIT. Nothing of it is kept after the call.
 */
typedef struct trapline_program {
  size_t struct_size;             /**< sizeof(trapline_program) as the caller knows it. */
  const char* text;               /**< The D program; need not end in a NUL. */
  size_t text_size;               /**< Its length in bytes. */
  const char* name;               /**< What diagnostics call it; NULL: a default. */
  const char* const* arguments;   /**< The macro arguments $1, $2, ...; each ends in a NUL. */
  size_t argument_count;          /**< How many `arguments`. */
  const trapline_option* options; /**< D options. */
  size_t option_count;            /**< How many `options`. */
} trapline_program;

/** Initialises a ::trapline_program to an empty one. */
#define TRAPLINE_PROGRAM_INIT {sizeof(trapline_program), "", 0, NULL, NULL, 0, NULL, 0}

/** Flag of the functions that make a session: what clauses record is delivered. */
#define TRAPLINE_RECORDS 1u

/** Flag of trapline_session_snapshot(): with the text that the command would print. */
#define TRAPLINE_SNAPSHOT_TEXT 1u

/**
 * Receives records.
 * It is called outside the library's lock, with the thread's signals as they were, and what it
 * calls is seen by sessions of this process. It may call anything on the session, destroying it
 * included.
 * @param record valid until the callback returns
 * @param user as given together with the callback
 */
typedef void (*trapline_record_callback)(const trapline_record* record, void* user);

/** @name Version and errors
 * @{ */

/**
 * The version of the library that is loaded.
 * @return as "0.1.0"; static
 */
TRAPLINE_API const char* trapline_version(void);

/**
 * The name of an error.
 * @param error any value
 * @return as "HELPER_GONE"; "UNKNOWN" for a value that is none; static
 */
TRAPLINE_API const char* trapline_error_name(trapline_error error);

/**
 * What the last call of the calling thread that failed had to say.
 * @return a line of text, of this thread only; valid until its next call that fails; "" if none did
 */
TRAPLINE_API const char* trapline_error_text(void);

/** @}
 * @name Sessions
 * @{ */

/**
 * Makes a session that traces the process that calls it.
 * Starts the helper: some 10 ms. Nothing is traced before trapline_session_start().
 * @param flags 0 or TRAPLINE_RECORDS
 * @param session set to the new session, or to NULL
 * @return TRAPLINE_OK; NO_HELPER, HELPER_GONE, PROTOCOL, PERMISSION, YAMA, BUSY_TRACER,
 * UNSUPPORTED, OS, MEMORY
 */
TRAPLINE_API trapline_error trapline_session_self(unsigned flags, trapline_session** session);

/**
 * Makes a session that traces another process, of the same user.
 * @param pid the process, as this process sees it
 * @param flags 0 or TRAPLINE_RECORDS
 * @param session set to the new session, or to NULL
 * @return as trapline_session_self(); also NOT_FOUND, TARGET_GONE
 */
TRAPLINE_API trapline_error trapline_session_attach(int pid, unsigned flags,
                                                    trapline_session** session);

/**
 * Starts a program in order to trace it. It is a child of the helper, not of the caller, has the
 * caller's standard input, output and error, and waits before its first instruction. Compiling lets
 * its libraries be mapped and initialised; from there on it waits for trapline_session_start().
 * When the session is destroyed before that, it is ended; when afterwards, it runs on.
 * @param arguments the program (searched in PATH if without a slash) and its arguments, ended by
 *   NULL
 * @param flags 0 or TRAPLINE_RECORDS
 * @param session set to the new session, or to NULL
 * @return as trapline_session_self(); also NOT_FOUND
 */
TRAPLINE_API trapline_error trapline_session_launch(const char* const* arguments, unsigned flags,
                                                    trapline_session** session);

/**
 * Stops the session if it is running, ends the helper and frees everything. When it returns, the
 * traced process is byte for byte as it was. Waits for a callback that is being run by the
 * library's thread, unless called by it.
 * @param session NULL: nothing happens
 */
TRAPLINE_API void trapline_session_destroy(trapline_session* session);

/**
 * The traced process.
 * @param session not NULL
 * @return its id
 */
TRAPLINE_API int trapline_session_pid(const trapline_session* session);

/**
 * The helper's process.
 * @param session not NULL
 * @return its id; the process may have ended
 */
TRAPLINE_API int trapline_session_helper_pid(const trapline_session* session);

/**
 * Sets how long a call on the session waits for the helper's answer before it gives the session
 * up with TRAPLINE_ERROR_TIMEOUT. The default is two minutes.
 * @param session not NULL
 * @param milliseconds negative: for ever
 * @return TRAPLINE_OK, ARGUMENT, FORKED
 */
TRAPLINE_API trapline_error trapline_session_set_timeout(trapline_session* session,
                                                         int milliseconds);

/**
 * Compiles a D program for the session; trapline_session_compile_program() with nothing but text.
 * @param session not NULL
 * @param text the program; ends in a NUL
 * @param report as there
 * @return as there
 */
TRAPLINE_API trapline_error trapline_session_compile(trapline_session* session, const char* text,
                                                     trapline_report** report);

/**
 * Compiles a D program for the session, in place of the one before, which is gone with its
 * aggregations, also when this fails. Only while the session is not running. Costs some 10 to
 * 100 ms, in the helper.
 * @param session not NULL
 * @param program the program and what goes with it
 * @param report NULL, or set to what there is to say: how many probes matched, diagnostics, notes;
 *   also with TRAPLINE_ERROR_COMPILE, else NULL on errors
 * @return TRAPLINE_OK; ARGUMENT, COMPILE, STATE, TARGET_GONE, UNSUPPORTED, HELPER_GONE, ...
 */
TRAPLINE_API trapline_error trapline_session_compile_program(trapline_session* session,
                                                             const trapline_program* program,
                                                             trapline_report** report);

/**
 * Puts the probes in place; when it returns, they count. Starting again after a stop goes on
 * counting into the same aggregations. The process is halted for some milliseconds meanwhile.
 * D variables begin anew; libraries that were loaded since are matched, too. A place where another
 * session's probe stands is refused.
 * @param session not NULL
 * @param report NULL, or set to how many places are armed, which were refused, and notes. Where
 * some were refused, counts lack these
 * @return TRAPLINE_OK; UNSUPPORTED (all places were refused; nothing runs), STATE, PERMISSION,
 * YAMA, BUSY_TRACER, TARGET_GONE, HELPER_GONE, ...
 */
TRAPLINE_API trapline_error trapline_session_start(trapline_session* session,
                                                   trapline_report** report);

/**
 * Takes the probes away; when it returns, the process is as it was, the D program's END clauses
 * have run, and all that was counted can be read. A session that is not running is left as it is.
 * @param session not NULL
 * @param report NULL, or set to the notes
 * @return TRAPLINE_OK; HELPER_GONE, ...
 */
TRAPLINE_API trapline_error trapline_session_stop(trapline_session* session,
                                                  trapline_report** report);

/**
 * Reads all aggregations, running or not. It holds every firing that had ended when it was called;
 * only a keyed one that the scheduler has just interrupted may come with a later snapshot (after a
 * stop, nothing is left out).
 * Costs well under 1 ms for a few hundred keys. The traced process is not halted.
 * @param session not NULL
 * @param flags 0 or TRAPLINE_SNAPSHOT_TEXT
 * @param snapshot set to the snapshot, or to NULL; it outlives the session
 * @return TRAPLINE_OK; STATE (no program), HELPER_GONE, ...
 */
TRAPLINE_API trapline_error trapline_session_snapshot(trapline_session* session, unsigned flags,
                                                      trapline_snapshot** snapshot);

/**
 * Sets all aggregations to nothing, running or not.
 * @param session not NULL
 * @return TRAPLINE_OK; STATE (no program), HELPER_GONE, ...
 */
TRAPLINE_API trapline_error trapline_session_clear(trapline_session* session);

/**
 * Waits until tracing has ended by itself: the D program called exit(), the process has ended, or
 * tracing failed.
 * @param session not NULL
 * @param milliseconds how long; negative: for ever
 * @return TRAPLINE_OK; TIMEOUT (the session goes on), HELPER_GONE, FORKED
 */
TRAPLINE_API trapline_error trapline_session_wait(trapline_session* session, int milliseconds);

/** @}
 * @name Records
 * Firings are delivered to sessions that were made with TRAPLINE_RECORDS, all other records to
 * every session; either by a thread of the library's (trapline_session_set_callback()) or when the
 * program asks (trapline_session_dispatch()). Up to 16 MiB that nobody took are kept in the
 * library, and as many in the helper (64 KiB in the library without TRAPLINE_RECORDS); what is lost
 * beyond that is counted in trapline_drops::client.
 * @{ */

/**
 * A descriptor that polls readable (POLLIN) when there may be records to dispatch, or when the
 * helper has ended. For select(), poll(), epoll and event loops only: not to be read or closed.
 * @param session not NULL
 * @param fd set to the descriptor, or to -1; valid until the session is destroyed
 * @return TRAPLINE_OK; ARGUMENT, OS, FORKED
 */
TRAPLINE_API trapline_error trapline_session_fd(trapline_session* session, int* fd);

/**
 * Calls `callback` for each record that has arrived. Does not wait: not for records, and not for
 * calls of other threads on this session.
 * @param session not NULL
 * @param callback called by this thread, before the function returns
 * @param user passed to it
 * @return TRAPLINE_OK, also if there was none; HELPER_GONE when all have been taken and no more
 *   will come; ARGUMENT, PROTOCOL, FORKED
 */
TRAPLINE_API trapline_error trapline_session_dispatch(trapline_session* session,
                                                      trapline_record_callback callback,
                                                      void* user);

/**
 * Has records delivered by a thread of the library's own, which is started by the first call of
 * this function; all its signals are blocked. Records of one session are delivered one after the
 * other. A callback whose own calls fire the probes that it hears of never comes to rest: exclude
 * its thread by a predicate on tid.
 * @param session not NULL
 * @param callback called by that thread; NULL: records wait from now on. When the function
 *   returns, the one before is not running any more (unless it is the caller)
 * @param user passed to it
 * @return TRAPLINE_OK; ARGUMENT, OS, MEMORY, FORKED
 */
TRAPLINE_API trapline_error trapline_session_set_callback(trapline_session* session,
                                                          trapline_record_callback callback,
                                                          void* user);

/**
 * What a record tells, and so which of the other functions have an answer.
 * @param record not NULL
 * @return its kind
 */
TRAPLINE_API trapline_record_kind trapline_record_get_kind(const trapline_record* record);

/**
 * FIRING, FAULT: the probe that fired.
 * @param record not NULL
 * @return the probe; NULL for other kinds
 */
TRAPLINE_API const trapline_probe* trapline_record_probe(const trapline_record* record);

/**
 * FIRING: when it fired.
 * @param record not NULL
 * @return nanoseconds of CLOCK_MONOTONIC; 0 for other kinds
 */
TRAPLINE_API uint64_t trapline_record_time(const trapline_record* record);

/**
 * FIRING: the thread that fired.
 * @param record not NULL
 * @return its id as gettid() gives it; 0 for other kinds
 */
TRAPLINE_API int trapline_record_tid(const trapline_record* record);

/**
 * FIRING: the CPU it fired on.
 * @param record not NULL
 * @return its number from 0; 0 for other kinds
 */
TRAPLINE_API int trapline_record_cpu(const trapline_record* record);

/**
 * FIRING: what the clause recorded, in its order.
 * @param record not NULL
 * @param count set to how many there are; 0 for other kinds
 * @return that many actions
 */
TRAPLINE_API const trapline_action* trapline_record_actions(const trapline_record* record,
                                                            size_t* count);

/**
 * FAULT, NOTE, ENDED: the message.
 * @param record not NULL
 * @return the text; empty for other kinds
 */
TRAPLINE_API trapline_string trapline_record_text(const trapline_record* record);

/**
 * FAULT: the address that could not be read, and DTrace's number of the fault.
 * @param record not NULL
 * @param fault NULL, or set to the number; 0 for other kinds
 * @return the address; 0 for other kinds
 */
TRAPLINE_API uint64_t trapline_record_fault(const trapline_record* record, int* fault);

/**
 * DROPS: what was lost since the last record of this kind.
 * @param record not NULL
 * @return the losses; all 0 for other kinds
 */
TRAPLINE_API trapline_drops trapline_record_drops(const trapline_record* record);

/**
 * ENDED: why tracing is over.
 * @param record not NULL
 * @param status NULL, or set: EXIT: what exit() was given; TARGET, of a launched program: its exit
 *   status, or 128 and the number of the signal that ended it; else 0
 * @return the reason; TRAPLINE_END_EXIT for other kinds
 */
TRAPLINE_API trapline_end_reason trapline_record_end(const trapline_record* record, int* status);

/** @}
 * @name Reports
 * @{ */

/**
 * Frees a report.
 * @param report NULL: nothing happens
 */
TRAPLINE_API void trapline_report_destroy(trapline_report* report);

/**
 * How many probes matched (of compiling) or how many places are armed (of starting).
 * @param report not NULL
 * @return their number; 0 of stopping
 */
TRAPLINE_API uint64_t trapline_report_probes(const trapline_report* report);

/**
 * Of compiling: mistakes and warnings, in the order of the source.
 * @param report not NULL
 * @param count set to how many there are
 * @return that many diagnostics
 */
TRAPLINE_API const trapline_diagnostic* trapline_report_diagnostics(const trapline_report* report,
                                                                    size_t* count);

/**
 * Of starting: places that could not be probed.
 * @param report not NULL
 * @param count set to how many there are
 * @return that many refusals
 */
TRAPLINE_API const trapline_refusal* trapline_report_refusals(const trapline_report* report,
                                                              size_t* count);

/**
 * Things that a user should know, a line each.
 * @param report not NULL
 * @param count set to how many there are
 * @return that many lines
 */
TRAPLINE_API const trapline_string* trapline_report_notes(const trapline_report* report,
                                                          size_t* count);

/** @}
 * @name Snapshots
 * @{ */

/**
 * Frees a snapshot and all that its accessors returned.
 * @param snapshot NULL: nothing happens
 */
TRAPLINE_API void trapline_snapshot_destroy(trapline_snapshot* snapshot);

/**
 * What the command would print for all aggregations.
 * @param snapshot not NULL
 * @return the text; empty unless TRAPLINE_SNAPSHOT_TEXT was given
 */
TRAPLINE_API trapline_string trapline_snapshot_text(const trapline_snapshot* snapshot);

/**
 * What the session was doing.
 * @param snapshot not NULL
 * @return its state
 */
TRAPLINE_API trapline_state trapline_snapshot_state(const trapline_snapshot* snapshot);

/**
 * What had been lost since the program was compiled. Where it is not all 0 the numbers of the
 * snapshot may be too small.
 * @param snapshot not NULL
 * @return the losses
 */
TRAPLINE_API trapline_drops trapline_snapshot_drops(const trapline_snapshot* snapshot);

/**
 * How many aggregations there are.
 * @param snapshot not NULL
 * @return their number
 */
TRAPLINE_API size_t trapline_snapshot_size(const trapline_snapshot* snapshot);

/**
 * An aggregation by number, in the order of the program.
 * @param snapshot not NULL
 * @param index from 0
 * @return the aggregation; NULL: no such index
 */
TRAPLINE_API const trapline_aggregation* trapline_snapshot_aggregation(
    const trapline_snapshot* snapshot, size_t index);

/**
 * An aggregation by name.
 * @param snapshot not NULL
 * @param name without '@'; need not end in a NUL
 * @param name_size its length in bytes
 * @return the aggregation; NULL: none of this name
 */
TRAPLINE_API const trapline_aggregation* trapline_snapshot_find(const trapline_snapshot* snapshot,
                                                                const char* name, size_t name_size);

/**
 * An aggregation's name.
 * @param aggregation not NULL
 * @return its name without '@'
 */
TRAPLINE_API trapline_string trapline_aggregation_name(const trapline_aggregation* aggregation);

/**
 * What an aggregation computes.
 * @param aggregation not NULL
 * @return the function
 */
TRAPLINE_API trapline_function
trapline_aggregation_function(const trapline_aggregation* aggregation);

/**
 * The divisor that normalize() set. The values that accessors return are not divided by it.
 * @param aggregation not NULL
 * @return the divisor; 1: none
 */
TRAPLINE_API uint64_t trapline_aggregation_normal(const trapline_aggregation* aggregation);

/**
 * How many components the keys have.
 * @param aggregation not NULL
 * @return their number; 0: the aggregation has no keys and at most one entry
 */
TRAPLINE_API size_t trapline_aggregation_key_size(const trapline_aggregation* aggregation);

/**
 * How many entries there are.
 * @param aggregation not NULL
 * @return their number; 0: it has not been written to
 */
TRAPLINE_API size_t trapline_aggregation_size(const trapline_aggregation* aggregation);

/**
 * An entry by number, in the order in which the command prints them.
 * @param aggregation not NULL
 * @param index from 0
 * @return the entry; NULL: no such index
 */
TRAPLINE_API const trapline_entry* trapline_aggregation_entry(
    const trapline_aggregation* aggregation, size_t index);

/**
 * An entry by key. Integers are equal if their values are, signed or not; strings and bytes if
 * their bytes are. Looks through all entries.
 * @param aggregation not NULL
 * @param key as many components as the aggregation's keys have; NULL with 0
 * @param key_size how many components
 * @return the entry; NULL: none with this key
 */
TRAPLINE_API const trapline_entry* trapline_aggregation_find(
    const trapline_aggregation* aggregation, const trapline_value* key, size_t key_size);

/**
 * An entry's key.
 * @param entry not NULL
 * @param size set to how many components it has
 * @return that many components
 */
TRAPLINE_API const trapline_value* trapline_entry_key(const trapline_entry* entry, size_t* size);

/**
 * The one number that an entry stands for: of count(), sum(), min(), max(); of avg() and stddev()
 * the integer that the command prints.
 * @param entry not NULL
 * @param value set to the number, INT or UINT; not changed on errors
 * @return TRAPLINE_OK; TYPE for histograms
 */
TRAPLINE_API trapline_error trapline_entry_value(const trapline_entry* entry,
                                                 trapline_value* value);

/**
 * What avg() and stddev() have kept, exactly.
 * @param entry not NULL
 * @param statistics set; not changed on errors
 * @return TRAPLINE_OK; TYPE for other functions
 */
TRAPLINE_API trapline_error trapline_entry_statistics(const trapline_entry* entry,
                                                      trapline_statistics* statistics);

/**
 * The bins of a histogram that are not empty, in ascending order.
 * @param entry not NULL
 * @param count set to how many there are; 0 for other functions
 * @return that many bins
 */
TRAPLINE_API const trapline_bucket* trapline_entry_buckets(const trapline_entry* entry,
                                                           size_t* count);

/** @} */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TRAPLINE_TRAPLINE_H */
