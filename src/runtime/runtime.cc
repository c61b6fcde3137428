// The runtime as one translation unit: compiled to bitcode, embedded in the code generator, linked
// into every object.

#include "runtime/array.h"
#include "runtime/clock.h"
#include "runtime/memory.h"
#include "runtime/process.h"
#include "runtime/record.h"
#include "runtime/routine.h"
#include "runtime/slot.h"
#include "runtime/table.h"
#include "runtime/text.h"
