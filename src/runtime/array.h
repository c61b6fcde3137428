// Associative arrays (wire/dynvar.h), as bodies use them: with the table found in the arena and
// drops counted.

#pragma once

#include "runtime/slot.h"
#include "wire/dynvar.h"

namespace trapline::runtime {

// An operation, in the level's work words: kept in memory, it takes no stack.
struct ArrayRequest {
  wire::DynvarTable table;
  wire::DynvarKey key;
  Slot* slot;
  wire::DynvarValue value;
};
static_assert(sizeof(ArrayRequest) <= sizeof(Level::work));

// `value`: what is stored, or where to load to.
TL_SLOW ArrayRequest* tl_array_request(const ProbeSite* site, Level* level,
                                       const wire::DynvarShape* shape, const uint64_t* key,
                                       uint64_t count, void* value) {
  auto* request = reinterpret_cast<ArrayRequest*>(level->work);
  request->table.cells = reinterpret_cast<unsigned char*>(site->arena + shape->offset);
  request->table.capacity = shape->capacity;
  request->table.cell_size = shape->cell_size;
  request->table.value_size = shape->value_size;
  request->key.words = key;
  request->key.count = static_cast<uint32_t>(count);
  request->key.hash = wire::hash_key(key, static_cast<uint32_t>(count), 0);
  request->value.bytes = value;
  request->value.form = shape->is_text != 0 ? wire::DynvarForm::kText : wire::DynvarForm::kBytes;
  return request;
}

// 1: done. 0: not; a drop is counted, unless there was no such key.
inline uint64_t finish(const ArrayRequest* request, wire::DynvarResult result) {
  if (result == wire::DynvarResult::kFull || result == wire::DynvarResult::kContended) {
    add_in_place(&request->slot->drops_dynamic, 1);
  }
  return result == wire::DynvarResult::kDone ? 1 : 0;
}

TL_LARGE __attribute__((flatten)) uint64_t tl_array_load(Slot* slot, ArrayRequest* request) {
  request->slot = slot;
  return finish(request, wire::dynvar_load(request->table, request->key, request->value));
}

TL_LARGE __attribute__((flatten)) void tl_array_store(Slot* slot, ArrayRequest* request) {
  request->slot = slot;
  finish(request, wire::dynvar_store(request->table, request->key, request->value));
}

TL_LARGE __attribute__((flatten)) void tl_array_remove(Slot* slot, ArrayRequest* request) {
  request->slot = slot;
  finish(request, wire::dynvar_remove(request->table, request->key));
}

}  // namespace trapline::runtime
