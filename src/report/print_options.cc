#include "report/print_options.h"

#include <algorithm>
#include <limits>

namespace trapline::report {
namespace {

std::uint32_t position(const plan::Options& options, std::string_view name) {
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(options.number(name), 0, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace

PrintOptions print_options(const plan::Options& options, PrintOptions base) {
  base.quiet = options.flag("quiet");
  base.flowindent = options.flag("flowindent");
  base.rawbytes = options.flag("rawbytes");
  base.droptags = options.flag("droptags");
  base.printsize = static_cast<std::size_t>(std::max<std::int64_t>(options.number("printsize"), 0));
  base.sort.by_key = options.flag("aggsortkey");
  base.sort.reversed = options.flag("aggsortrev");
  base.sort.key_position = position(options, "aggsortkeypos");
  base.sort.position = position(options, "aggsortpos");
  return base;
}

}  // namespace trapline::report
