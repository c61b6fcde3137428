// A traced process within the test: an arena of our own, sites, and calls of compiled bodies as a
// trampoline makes them. Reading back is done by the simplest code that can, independent of the
// consumer.

#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "plan/layout.h"
#include "wire/key.h"
#include "wire/layout.h"

namespace trapline::codegen::test {

// What the probed code has in its registers; order as the stub in test_target_stub.h saves them.
struct CallFrame {
  std::array<std::uint64_t, 15> in;    // rax rbx rcx rdx rsi rdi rbp r8 r9 r10 r11 r12 r13 r14 r15
  std::array<std::uint64_t, 5> stack;  // return address, arg6 .. arg9
  std::array<std::uint64_t, 15> out;
  std::array<unsigned char, 256> vector_in;
  std::array<unsigned char, 256> vector_out;
};
static_assert(sizeof(CallFrame) == 35 * 8 + 512);
enum RegisterIndex : std::size_t { kRax, kRbx, kRcx, kRdx, kRsi, kRdi, kRbp, kR8, kR9, kR10, kR11 };

// Loads every register from `frame`, r10 with `site`, calls `body`, saves every register.
extern "C" void trapline_test_call(const void* body, const wire::ProbeSite* site, CallFrame* frame);
// Calls `body` `count` times with the given first argument, which grows by `step`.
extern "C" void trapline_test_loop(const void* body, const wire::ProbeSite* site,
                                   std::uint64_t count, std::uint64_t first, std::uint64_t step);

struct Record {
  wire::RecordHeader header;
  std::vector<std::byte> payload;

  template <typename T>
  T get(std::size_t offset) const {
    T value{};
    EXPECT_LE(offset + sizeof(T), payload.size());
    std::memcpy(&value, payload.data() + offset, sizeof(T));
    return value;
  }
  std::string text(std::size_t offset) const {
    return reinterpret_cast<const char*>(payload.data() + offset);
  }
};

using Words = std::vector<std::uint64_t>;

class Target {
 public:
  enum class Layout { kToDo, kDone };  // the front end's programs are laid out
  // What cannot be compiled fails the test, or is for the test to ask about.
  enum class Refusal { kFails, kIsKept };
  struct Options {
    std::uint64_t buffer_bytes = 4 << 20;
    std::uint64_t dynvarsize = 64 << 10;
    std::int32_t mute_offset = 0;
    Layout program = Layout::kToDo;
    Refusal refusal = Refusal::kFails;
    Effort effort = Effort::kByCount;
  };

  // Lays the program out (a plan made by hand), maps an arena and compiles one body for each
  // request.
  Target(plan::Program program, std::vector<BodyRequest> bodies, Options options)
      : program_(std::move(program)) {
    if (options.program == Layout::kToDo) {
      EXPECT_TRUE(plan::lay_out(program_, {.dynvarsize = options.dynvarsize}).has_value());
    }
    wire::LayoutRequest request;
    for (const auto& text : program_.strings) request.strings_size += text.size() + 1;
    const std::uint64_t names = request.strings_size;
    request.strings_size += 256;
    request.globals_size = program_.globals_size;
    request.direct_size = program_.direct_size;
    request.self_size = program_.self_size;
    request.scratch_size = scratch_size(program_);
    request.threads = 4;
    request.buffer_bytes = options.buffer_bytes;
    request.mute_offset = options.mute_offset;
    layout_ = wire::make_layout(request);
    map_arena(names);
    auto compiled = compile(program_, layout_, bodies, options.effort);
    if (!compiled) {
      refused_ = compiled.error();
      EXPECT_EQ(options.refusal, Refusal::kIsKept) << refused_->text();
      return;
    }
    object_ = *compiled;
    code_ = ::mmap(nullptr, object_.bytes.size(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memcpy(code_, object_.bytes.data(), object_.bytes.size());
    ::mprotect(code_, object_.bytes.size(), PROT_READ | PROT_EXEC);
  }
  Target(plan::Program program, std::vector<BodyRequest> bodies)
      : Target(std::move(program), std::move(bodies), Options()) {}
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() {
    if (code_ != nullptr) ::munmap(code_, object_.bytes.size());
    ::munmap(arena_, layout_.size);
  }

  const void* body(std::size_t index = 0) const {
    return static_cast<std::byte*>(code_) + object_.entries[index];
  }
  void fire(std::array<std::uint64_t, 6> arguments, std::size_t body_index = 0) {
    CallFrame frame = this->frame(arguments);
    trapline_test_call(body(body_index), &site_, &frame);
  }
  CallFrame frame(std::array<std::uint64_t, 6> arguments) const {
    CallFrame frame{};
    frame.in[kRdi] = arguments[0];
    frame.in[kRsi] = arguments[1];
    frame.in[kRdx] = arguments[2];
    frame.in[kRcx] = arguments[3];
    frame.in[kR8] = arguments[4];
    frame.in[kR9] = arguments[5];
    return frame;
  }

  wire::Header& header() { return *reinterpret_cast<wire::Header*>(arena_); }
  wire::ProbeSite& site() { return site_; }
  const wire::Layout& layout() const { return layout_; }
  const plan::Program& program() const { return program_; }
  const ObjectCode& object() const { return object_; }
  const std::optional<Error>& refused() const { return refused_; }  // there are no bodies then
  std::uint32_t& alive() { return alive_; }
  std::byte* arena() { return reinterpret_cast<std::byte*>(arena_); }
  std::byte* globals() { return arena() + layout_.globals; }

  wire::Slot& slot(std::uint32_t index) {
    return *reinterpret_cast<wire::Slot*>(arena_ + layout_.slots + index * layout_.slot_stride);
  }
  // The slots that some thread has claimed.
  std::vector<wire::Slot*> slots() {
    std::vector<wire::Slot*> found;
    for (std::uint32_t i = 0; i <= layout_.slot_count; ++i) {
      if (slot(i).owner != 0) found.push_back(&slot(i));
    }
    return found;
  }

  // The sum over all slots of word `word` of an aggregation's direct cells.
  std::uint64_t direct(std::uint32_t aggregation, std::uint32_t word = 0) {
    std::uint64_t sum = 0;
    for (wire::Slot* slot : slots()) {
      const auto* cells = reinterpret_cast<const std::uint64_t*>(
          reinterpret_cast<const unsigned char*>(slot) + layout_.slot_direct +
          program_.aggregations[aggregation].direct_offset);
      sum += cells[word];
    }
    return sum;
  }

  unsigned char* chunk(std::uint32_t index) {
    return arena_ + layout_.chunks + std::uint64_t{index} * wire::kChunkSize;
  }

  // All entries of all tables of one parity, as (aggregation, key words) -> value words; entries of
  // the same key in several chunks are handed to `merge` one by one.
  template <typename Merge>
  void for_each_entry(std::uint32_t parity, Merge merge) {
    for (wire::Slot* slot : slots()) {
      for (auto& level : slot->levels) read_chain(level.tables[parity], merge);
    }
  }
  template <typename Merge>
  void read_chain(std::uint32_t first, Merge merge) {
    for (std::uint32_t at = first; at != 0;) {
      const unsigned char* bytes = chunk(at - 1);
      const auto* table = reinterpret_cast<const wire::TableChunk*>(bytes);
      const auto* words =
          reinterpret_cast<const std::uint64_t*>(bytes + wire::TableChunk::kDataOffset);
      for (std::uint32_t used = 0; used < table->used;) {
        wire::Entry entry;
        std::memcpy(&entry, words + used / 8, sizeof(entry));
        const auto& aggregation = program_.aggregations[entry.aggregation];
        const std::uint64_t* key = words + used / 8 + 1;
        const std::uint64_t* value = key + entry.key_words;
        merge(entry.aggregation, Words(key, value), Words(value, value + aggregation.value_words));
        used += (1 + entry.key_words + aggregation.value_words) * 8;
      }
      at = table->next;
    }
  }
  // Entries whose values are summed word by word.
  std::map<std::pair<std::uint32_t, Words>, Words> summed(std::uint32_t parity = 0) {
    std::map<std::pair<std::uint32_t, Words>, Words> sums;
    for_each_entry(parity, [&](std::uint32_t aggregation, Words key, Words value) {
      Words& sum = sums[{aggregation, key}];
      sum.resize(value.size());
      for (std::size_t i = 0; i < value.size(); ++i) sum[i] += value[i];
    });
    return sums;
  }

  // The records of all rings, each ring in order.
  std::vector<Record> records() {
    std::vector<Record> found;
    for (wire::Slot* slot : slots()) {
      for (auto& level : slot->levels) {
        for (std::uint32_t at = level.ring_first; at != 0;) {
          const unsigned char* bytes = chunk(at - 1);
          const auto* ring = reinterpret_cast<const wire::RingChunk*>(bytes);
          for (std::uint32_t used = 0; used < ring->committed;) {
            Record record;
            std::memcpy(&record.header, bytes + wire::RingChunk::kDataOffset + used,
                        sizeof(record.header));
            const auto* from =
                reinterpret_cast<const std::byte*>(bytes) + wire::RingChunk::kDataOffset + used;
            record.payload.assign(from + sizeof(record.header), from + record.header.size);
            found.push_back(record);
            used += record.header.size;
          }
          at = ring->next;
        }
      }
    }
    return found;
  }

  // Where a thread's id lies in its control block.
  static std::uint32_t tid_offset() {
    const auto* block = reinterpret_cast<const unsigned char*>(pthread_self());
    const auto tid = static_cast<std::uint32_t>(::syscall(SYS_gettid));
    for (std::uint32_t offset = 0; offset < 0x800; offset += 4) {
      std::uint32_t word;
      std::memcpy(&word, block + offset, 4);
      if (word == tid) return offset;
    }
    return 0;
  }

 private:
  void map_arena(std::uint64_t names) {
    void* memory =
        ::mmap(nullptr, layout_.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    arena_ = static_cast<unsigned char*>(memory);
    wire::initialize(arena_, layout_);
    std::uint64_t at = layout_.strings;
    for (const auto& text : program_.strings) {
      std::memcpy(arena_ + at, text.c_str(), text.size() + 1);
      at += text.size() + 1;
    }
    at = layout_.strings + names;
    const auto add_name = [&](const char* name) {
      const auto offset = static_cast<std::uint32_t>(at);
      std::strcpy(reinterpret_cast<char*>(arena_ + at), name);
      at += std::strlen(name) + 1;
      return offset;
    };
    header().tid_offset = tid_offset();
    header().tsc_mult = 3;  // of a clock that is easily checked: ns = 1000 + (tsc - 500) * 3 / 2
    header().tsc_shift = 1;
    header().tsc_base = 500;
    header().ns_base = 1000;
    header().wall_offset = 1000000;
    header().pid = 4242;
    header().ppid = 4241;
    header().ancestors[0] = 4242;
    header().ancestors[1] = 4241;
    header().uid = 1000;
    header().gid = 1001;
    header().execname = add_name("tested");
    site_.arena = reinterpret_cast<std::uint64_t>(arena_);
    site_.alive = reinterpret_cast<std::uint64_t>(&alive_);
    site_.probe = 7;
    site_.offset = 0x42;
    site_.provider = add_name("pid4242");
    site_.module = add_name("libc.so.6");
    site_.function = add_name("malloc");
    site_.name = add_name("entry");
    site_.id = 31;
    header().state = wire::kActive;
  }

  plan::Program program_;
  wire::Layout layout_{};
  unsigned char* arena_ = nullptr;
  void* code_ = nullptr;
  ObjectCode object_;
  std::optional<Error> refused_;
  wire::ProbeSite site_{};
  std::uint32_t alive_ = 1;
};

}  // namespace trapline::codegen::test
