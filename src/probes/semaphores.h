// The semaphores of statically defined probes: raised by one while a site is armed.
//
// Several tracers may do so to one counter; each adds and takes only its own, while the process is
// stopped. What is on the way is in the book of the site's region first (book.h), so that one that
// was left by a killed tracer can be taken back by another.

#pragma once

#include "base/address.h"
#include "base/result.h"
#include "probes/book.h"
#include "probes/region_image.h"
#include "target/memory.h"

namespace trapline::probes {

// Precondition of all: the process is stopped. Errors: kOs, kTargetGone.
Result<> raise_semaphore(target::Memory& memory, const PlacedSemaphore& semaphore);
Result<> lower_semaphore(target::Memory& memory, const PlacedSemaphore& semaphore);
// By the book's own words, which may be forged; `in_book`: where they were found.
Result<> take_back_semaphore(target::Memory& memory, const BookSemaphore& entry,
                             RemoteAddr in_book);

}  // namespace trapline::probes
