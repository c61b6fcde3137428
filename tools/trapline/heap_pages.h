// Large pages for the command's own heap.

#pragma once

namespace trapline::tool {

// Asks for pages of 2 MiB under the heap. Arming thousands of probes takes some 70 MB for a moment,
// and their 18,000 page faults were 40 % of the time (on a virtual machine). Call first in main().
// Where the system has no such pages nothing changes.
void use_large_pages();

}  // namespace trapline::tool
