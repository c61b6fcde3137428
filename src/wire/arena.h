// The arena: the memory that the traced process and the tracer share.
//
// Probe bodies, running in the traced process, write it; the tracer reads it at any moment and
// never stops anyone to do so. This header is compiled for both sides (the runtime is
// freestanding), so it holds only fixed-width integers, offsets instead of pointers, and no
// dependency. A change of any layout here raises kVersion.
//
//   header | strings | globals and dynamic-variable tables | slots (one a thread, and one early) |
//   chunk pool
//
// What each side may write:
//   - The tracer writes Header (state, epoch, heartbeat), the strings, and chunks that it has taken
//   over.
//   - A body writes its own thread's Slot and the chunks that hang on it, and globals.
//   - Additive counters (direct cells) are written by their thread alone and only read by the
//   tracer, which
//     subtracts a baseline for clear(). Everything else in an aggregation goes through tables by
//     epoch (below).
//
// The arena is hostile: the traced process may write anything at any moment. The tracer copies an
// index, checks the copy and uses the copy.
//
// Epochs. A level has two table chains, one for even and one for odd epochs. To drain:
//   1. the tracer stores epoch e+1 and calls membarrier(GLOBAL_EXPEDITED);
//   2. a body that entered before stores level.entered = e, compiler barrier, re-reads
//   header.epoch: if it differs
//      it stores the new one and checks again, so after the barrier a level that is not seen busy
//      in e stays out;
//   3. a level whose `entered` is of e's parity is still busy (in e, or in an epoch long past): it
//   is drained in a later
//      round. Any other level's chain of parity e now belongs to the tracer, which merges it, gives
//      its chunks back and sets the chain to 0.

#pragma once

#include <stdint.h>

namespace trapline::wire {

inline constexpr uint64_t kMagic = 0x314e494c50415254;  // "TRAPLIN1"
inline constexpr uint32_t kVersion = 4;

inline constexpr uint32_t kPageSize = 4096;
inline constexpr uint32_t kChunkSize = 64 * 1024;
// A probe that fires in a signal handler which interrupted a body uses the next level; deeper ones
// are dropped.
inline constexpr uint32_t kLevels = 3;
// Bytes of a nested dynamic-variable or aggregation key at most; a longer one is a drop.
inline constexpr uint32_t kMaxKeySize = 8 * 1024;

// Header::state. A body runs only if kActive is set and kExiting is not.
inline constexpr uint32_t kActive = 1;
inline constexpr uint32_t kEarly =
    2;  // some thread has no thread pointer yet: all use the early slot
inline constexpr uint32_t kExiting = 4;  // an exit() action ran

// Slot::owner of a thread known by its id instead of its thread pointer (under kEarly): the id with
// this bit.
inline constexpr uint64_t kOwnerIsTid = uint64_t{1} << 63;

inline constexpr uint32_t kAncestors = 16;

// What a thread asks the tracer to attend before it goes on; see probes/rendezvous.h.
enum Request : uint32_t {
  kExecRequest = 0,  // it is about to execute another program
  kLoadRequest = 1,  // the process's modules have changed
  kForkRequest = 2,  // it is about to make another process
  kRequests = 3,
};
struct RequestWord {
  uint32_t thread;  // a futex: the id of the thread that waits; 0: none. The tracer writes 0
  uint32_t missed;  // requests that nobody answered in time; the tracer writes 0
};
// In RequestWord::thread: the tracer has seen it and is at it.
inline constexpr uint32_t kRequestSeen = uint32_t{1} << 31;

struct alignas(64) Header {
  uint64_t magic;
  uint32_t version;
  uint32_t tid_offset;  // of the thread id in the thread's control block (fs:0); 0: unknown, gettid
                        // is called
  uint64_t size;        // of the arena, in bytes
  // The clock: ns = ns_base + ((tsc - tsc_base) * tsc_mult >> tsc_shift), CLOCK_MONOTONIC. With
  // tsc_mult 0 (a time stamp counter that is forbidden, or that the kernel does not trust) bodies
  // ask the kernel, and RecordHeader::tsc is in ns.
  uint64_t tsc_base;
  uint64_t ns_base;
  uint64_t tsc_mult;
  uint32_t tsc_shift;
  int32_t pid;
  uint64_t wall_offset;  // CLOCK_REALTIME - CLOCK_MONOTONIC, ns
  int32_t ppid;
  uint32_t uid;
  uint32_t gid;
  uint32_t execname;  // offset of a NUL-terminated string from the arena's start
  // Where a thread's processor number (rseq's cpu_id) lies, from its thread pointer on; 0: unknown,
  // a slower way is taken. glibc from 2.35 on: the variable __rseq_offset, + 4; or
  // PTRACE_GET_RSEQ_CONFIGURATION's pointer - fs + 4.
  int32_t cpu_offset;
  uint32_t reserved1;  // always 0: bodies take it as an empty string

  // The process and its parents, from the nearest on, for progenyof(); 0 behind the last.
  int32_t ancestors[kAncestors];

  alignas(64) uint32_t state;
  uint32_t reserved2;
  uint64_t epoch;  // starts at 2; 0 is never used

  // The free chunks: a stack of indices, linked by free_link(). Low half: index + 1, 0 or a number
  // beyond the last for none; high half: a tag that each push and pop raises (against ABA).
  alignas(64) uint64_t free_chunks;

  // Losses that belong to no slot, added atomically.
  alignas(64) uint64_t drops_no_slot;  // a thread found no slot

  alignas(64) uint32_t doorbell;  // a futex: raised by every request
  RequestWord requests[kRequests];
};

// What the first word of free chunk `index` holds when chunk `next` - 1 follows it: 0 where that is
// its neighbour, so that untouched memory is a stack of all chunks.
constexpr uint32_t free_link(uint32_t index, uint32_t next) { return next - (index + 2); }
constexpr uint32_t free_next(uint32_t index, uint32_t link) { return link + (index + 2); }

// One nesting level of one thread.
struct alignas(64) Level {
  uint64_t entered;    // 0: no body runs at this level; else the epoch it entered in
  uint32_t tables[2];  // by parity of the epoch: index + 1 of the chain's newest TableChunk; 0 none
  uint32_t ring_first;  // index + 1 of the first RingChunk this level ever took, for the tracer to
                        // find; 0 none
  uint32_t ring_last;   // index + 1 of the one being written
  uint32_t ring_used;   // bytes used in it, reserved ones included
  uint32_t reserved0;
  uint64_t work[12];  // of the body that holds the level: what its slow paths would else keep on
                      // the stack
};

// One thread of the traced process. Followed, at offsets that Layout gives, by direct cells, self
// variables and each level's scratch.
struct alignas(64) Slot {
  uint64_t owner;  // the thread pointer (fs:0); 0: free. Claimed by compare-and-swap
  uint32_t tid;    // of the thread that used it last
  uint32_t depth;  // levels in use
  // Losses on this thread, written by it alone.
  uint64_t drops_record;       // no room for a record: the clause did not run
  uint64_t drops_aggregation;  // no room for a new key
  uint64_t drops_dynamic;  // no room for an associative array's element, or its cell was contended
  uint64_t drops_level;    // nested deeper than kLevels
  uint64_t drops_speculation;  // speculation() found none free
  Level levels[kLevels];
};

// Chunks. Every chunk starts with `next`: index + 1 of the next chunk of its chain, or of the free
// list.
struct RingChunk {
  uint32_t next;       // set once, by the writer, when this chunk is full
  uint32_t committed;  // bytes of `data` that hold whole records
  static constexpr uint32_t kDataOffset = 8;
  static constexpr uint32_t kDataSize = kChunkSize - kDataOffset;
};

// An open-addressing hash table over entries that lie one after another in the data area. When a
// table is full, the body takes a new chunk, links it in front and forgets the old one: a key may
// so be in several chunks of a chain, and the tracer merges them.
struct TableChunk {
  uint32_t next;
  uint32_t used;     // bytes of data
  uint32_t entries;  // number of entries
  uint32_t reserved0;
  static constexpr uint32_t kIndexSize = 4096;                 // power of two
  static constexpr uint32_t kMaxEntries = kIndexSize / 4 * 3;  // keeps probing short
  static constexpr uint32_t kIndexOffset = 16;  // uint16_t index[kIndexSize]: data offset / 8 + 1
  static constexpr uint32_t kDataOffset = kIndexOffset + kIndexSize * 2;
  static constexpr uint32_t kDataSize = kChunkSize - kDataOffset;
};

// An entry: Entry, then key_words * 8 bytes of key, then the aggregation's value words.
//
// A key is its components one after another: an integer as one word (extended by its type's
// signedness); a string as a word with its length, then its bytes, padded with zeros to a whole
// word.
struct Entry {
  uint32_t hash;
  uint16_t aggregation;
  uint16_t key_words;
};

// A record of one firing of one clause, or of a fault.
struct RecordHeader {
  uint32_t size;    // bytes, this header included; a multiple of 8
  uint16_t clause;  // index into the plan's clauses
  uint16_t kind;    // RecordKind
  uint32_t probe;   // index of the probe in the session
  uint32_t cpu;
  uint64_t tsc;
  uint32_t tid;
  uint32_t speculation;  // the token of the speculation that it belongs to; 0: none
};
enum RecordKind : uint16_t { kRecordData = 1, kRecordFault = 2 };

// The payload of a fault record.
struct FaultPayload {
  uint32_t fault;        // plan::Fault
  uint32_t instruction;  // index in the clause's code
  uint64_t address;      // the faulting address, or 0
};

// What r10 points to when a body is called; one a site, beside its trampoline, read-only there.
struct alignas(64) ProbeSite {
  uint64_t arena;  // address of the arena in the traced process
  uint64_t alive;  // address of a word that is 1 here and 0 in a forked child
  uint32_t probe;  // index of the probe in the session
  uint32_t
      stack_adjust;  // bytes that the trampoline pushed between the probed instruction and the call
  uint64_t offset;   // of the instruction in its function: arg0 of a return probe
  uint32_t provider;  // offsets of NUL-terminated strings from the arena's start
  uint32_t module;
  uint32_t function;
  uint32_t name;
  uint64_t id;  // the probe's id as the user sees it
  uint64_t reserved0;
};

// Where things lie in an arena; the same for all targets of a session. Offsets are from the arena's
// start, those of a slot from the slot's.
struct Layout {
  uint64_t strings;
  uint64_t strings_size;
  uint64_t globals;
  uint64_t globals_size;
  uint64_t slots;
  uint64_t slot_stride;
  uint32_t slot_count;   // a power of two; the early slot is one more, at index slot_count
  uint32_t slot_shift;   // first index tried: (thread pointer * kHashMultiplier) >> slot_shift
  uint32_t slot_direct;  // direct cells
  uint32_t slot_direct_size;
  uint32_t slot_self;  // self variables
  uint32_t slot_self_size;
  uint32_t slot_scratch;  // kLevels areas of scratch_size bytes
  uint32_t scratch_size;
  uint32_t chunk_count;
  // Where each thread has a 32-bit word that mutes its probes while it is not 0, in bytes from the
  // thread pointer; 0: nowhere. libtrapline's own calls are so kept out of what it counts.
  int32_t mute_offset;
  uint64_t chunks;
  uint64_t size;
  bool operator==(const Layout&) const = default;
};

inline constexpr uint64_t kHashMultiplier = 0x9e3779b97f4a7c15;
inline constexpr uint32_t kSlotProbes = 16;  // slots tried from the first index on, wrapping

static_assert(sizeof(Level) == 128 && sizeof(Slot) == 64 + 128 * kLevels);
static_assert(sizeof(RecordHeader) == 32 && sizeof(ProbeSite) == 64 && sizeof(Entry) == 8);
static_assert(TableChunk::kDataOffset % 8 == 0 && TableChunk::kDataSize / 8 < 0xffff);

}  // namespace trapline::wire
