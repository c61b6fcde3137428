#include "report/typed_value.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "report/text.h"

namespace trapline::report {
namespace {

using ctypes::Type;
using ctypes::TypeId;
using ctypes::TypeKind;

constexpr int kIndent = 44;
constexpr int kMaxDepth = 10;

class Printer {
 public:
  Printer(const ctypes::TypeTable& types, std::string_view bytes) : types_(types), bytes_(bytes) {}

  std::string run(TypeId type) {
    visit("", type, 0, 0, 0);
    return std::move(out_);
  }

 private:
  void indent(int depth) { out_.append(static_cast<std::size_t>(kIndent + depth), ' '); }

  // The bits of a number; bytes that are not there are 0.
  std::uint64_t bits_at(std::uint64_t bit, std::uint32_t width) const {
    const std::uint64_t at = bit / 8;
    unsigned char window[16] = {};
    if (at < bytes_.size())
      std::memcpy(window, bytes_.data() + at, std::min<std::size_t>(9, bytes_.size() - at));
    unsigned __int128 value = 0;
    for (int i = 8; i >= 0; --i) value = value << 8 | window[i];
    value >>= bit % 8;
    const auto low = static_cast<std::uint64_t>(value);
    return width >= 64 ? low : low & ((std::uint64_t{1} << width) - 1);
  }

  bool is_zero(std::uint64_t bit, std::uint64_t bits) const {
    for (std::uint64_t done = 0; done < bits; done += 64) {
      const auto width = static_cast<std::uint32_t>(std::min<std::uint64_t>(bits - done, 64));
      if (bits_at(bit + done, width) != 0) return false;
    }
    return true;
  }

  // A structure without a name is "struct" alone.
  std::string name_of(TypeId type) const {
    static constexpr std::string_view kAnonymous = " (anon)";
    std::string name = types_.name(type);
    const std::size_t at = name.find(kAnonymous);
    return at == std::string::npos ? name : name.erase(at, kAnonymous.size());
  }

  // false: the data has ended, nothing more is printed. `width`: of a bit-field; 0: none.
  bool visit(std::string_view member, TypeId type, std::uint64_t bit, std::uint32_t width,
             int depth) {
    if (bit / 8 >= bytes_.size() || depth >= kMaxDepth) {
      indent(depth);
      out_ += "...\n";
      return false;
    }
    const Type& resolved = types_.get(types_.resolve(type));
    const std::uint64_t bits = width != 0 ? width : resolved.size * 8;
    if (depth > 0 && is_zero(bit, bits)) return true;
    const std::string head = (member.empty() ? std::string() : "." + std::string(member) + " = ") +
                             "(" + name_of(type) + ")";
    switch (resolved.kind) {
      case TypeKind::kStruct:
      case TypeKind::kUnion:
        return visit_members(head, resolved, bit, depth);
      case TypeKind::kArray:
        return visit_elements(head, resolved, bit, depth);
      default:
        break;
    }
    const std::string value = scalar(resolved, bit, static_cast<std::uint32_t>(bits));
    if (value.empty()) return true;
    indent(depth);
    out_ += head + value + ",\n";
    return true;
  }

  bool visit_members(const std::string& head, const Type& type, std::uint64_t bit, int depth) {
    indent(depth);
    out_ += head + " {\n";
    bool more = true;
    for (const ctypes::Member& member : type.members) {
      if (more)
        more =
            visit(member.name, member.type, bit + member.bit_offset, member.bit_width, depth + 1);
    }
    indent(depth);
    out_ += depth > 0 ? "},\n" : "}\n";
    return more;
  }

  bool visit_elements(const std::string& head, const Type& type, std::uint64_t bit, int depth) {
    indent(depth);
    out_ += head + " [\n";
    const Type& element = types_.get(types_.resolve(type.target));
    for (std::uint64_t i = 0; i < type.count; ++i) {
      const std::uint64_t at = bit + i * element.size * 8;
      if (element.is_char && element.size == 1 && bits_at(at, 8) == 0) break;
      if (!visit("", type.target, at, 0, depth + 1)) return false;
    }
    indent(depth);
    out_ += "],\n";
    return true;
  }

  std::string scalar(const Type& type, std::uint64_t bit, std::uint32_t width) const {
    std::uint64_t value = bits_at(bit, width);
    if (type.is_signed && width < 64 && (value >> (width - 1) & 1) != 0)
      value |= ~std::uint64_t{0} << width;
    std::string out;
    switch (type.kind) {
      case TypeKind::kInteger:
        if (type.is_char && type.is_signed && type.name == "char") {
          out = std::string("'") + static_cast<char>(value) + "'";
        } else if (type.is_signed) {
          append(out, "%" PRId64, static_cast<std::int64_t>(value));
        } else {
          append(out, "%" PRIu64, value);
        }
        return out;
      case TypeKind::kEnum:
        for (const ctypes::Enumerator& enumerator : type.enumerators) {
          if (enumerator.value == static_cast<std::int32_t>(value)) return enumerator.name;
        }
        append(out, "%d", static_cast<int>(value));
        return out;
      case TypeKind::kPointer:
        append(out, "0x%" PRIx64, value);
        return out;
      case TypeKind::kFloat:
        return floating(type, bit);
      case TypeKind::kString: {
        const std::string_view rest = bytes_.substr(std::min<std::size_t>(bit / 8, bytes_.size()));
        return "\"" +
               std::string(rest.substr(0, std::min<std::size_t>(type.size, rest.find('\0')))) +
               "\"";
      }
      default:
        return {};
    }
  }

  std::string floating(const Type& type, std::uint64_t bit) const {
    std::string out;
    if (bit / 8 + type.size > bytes_.size()) return out;
    const char* from = bytes_.data() + bit / 8;
    if (type.size == sizeof(float)) {
      float value = 0;
      std::memcpy(&value, from, sizeof value);
      append(out, "%g", static_cast<double>(value));
    } else if (type.size == sizeof(double)) {
      double value = 0;
      std::memcpy(&value, from, sizeof value);
      append(out, "%g", value);
    }
    return out;
  }

  const ctypes::TypeTable& types_;
  std::string_view bytes_;
  std::string out_;
};

}  // namespace

std::string typed_value_text(const ctypes::TypeTable& types, ctypes::TypeId type,
                             std::uint64_t address, std::string_view bytes) {
  std::string out;
  append(out, "0x%" PRIx64 " = *\n", address);
  return out + Printer(types, bytes).run(type);
}

}  // namespace trapline::report
