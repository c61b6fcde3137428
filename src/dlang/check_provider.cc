// `provider p { probe f(int, char *); };`: the names and prototypes of a program's own probes.

#include "dlang/checker.h"

namespace trapline::dlang {

using ctypes::TypeKind;

namespace {

// "request__start" is shown as request-start: one character of a name.
std::size_t shown_length(std::string_view name) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < name.size(); ++i, ++length) {
    if (name.substr(i, 2) == "__") ++i;
  }
  return length;
}

}  // namespace

void Checker::check_provider(const ProviderDefinition& provider, diag::SourceId source) {
  if (provider.name.find('`') != std::string::npos) {
    return report("PROV_BADNAME", provider.name_range,
                  "provider name may not contain scoping operator: " + provider.name);
  }
  if (provider.name.size() > plan::kMaxProbeNameLength) {
    return report("PROV_BADNAME", provider.name_range,
                  "provider name may not exceed " + std::to_string(plan::kMaxProbeNameLength) +
                      " characters: " + provider.name);
  }
  if (provider.name.back() >= '0' && provider.name.back() <= '9') {
    return report("PROV_BADNAME", provider.name_range,
                  "provider name may not end with a digit: " + provider.name,
                  "the number of the traced process comes behind it");
  }
  auto [known, is_new] = providers_.try_emplace(provider.name);
  if (is_new) {
    known->second.name = provider.name;
    known->second.source = source;
  }
  for (const ProviderProbe& probe : provider.probes) check_provider_probe(probe, known->second);
}

void Checker::check_provider_probe(const ProviderProbe& probe, plan::Provider& provider) {
  if (probe.name.find('`') != std::string::npos) {
    return report("PROV_BADNAME", probe.range,
                  "probe name may not contain scoping operator: " + probe.name);
  }
  if (shown_length(probe.name) > plan::kMaxProbeNameLength) {
    return report("PROV_BADNAME", probe.range,
                  "probe name may not exceed " + std::to_string(plan::kMaxProbeNameLength) +
                      " characters: " + probe.name);
  }
  const auto arguments = parameter_types(probe.arguments, Prototype::kProvider, false, probe.range);
  const auto translated =
      parameter_types(probe.translated, Prototype::kProvider, false, probe.range);
  if (!arguments || !translated) return;
  if (arguments->size() > plan::kMaxProbeArguments ||
      translated->size() > plan::kMaxProbeArguments) {
    return report("PROV_PRARGLEN", probe.range,
                  "probe " + probe.name + " has more than " +
                      std::to_string(plan::kMaxProbeArguments) + " parameters");
  }
  plan::ProviderProbe defined{probe.name, {}};
  for (const TypeId type : *arguments) defined.arguments.push_back(probe_argument(type));
  for (const plan::ProviderProbe& other : provider.probes) {
    if (other.name != defined.name) continue;
    if (other.arguments != defined.arguments) {
      report("PROV_INCOMPAT", probe.range,
             "probe " + provider.name + ":" + probe.name +
                 " is declared again, with other parameters");
    }
    return;
  }
  provider.probes.push_back(std::move(defined));
}

plan::ProbeArgument Checker::probe_argument(TypeId type) const {
  using Kind = plan::ProbeArgumentKind;
  plan::ProbeArgument argument;
  argument.type = name_of(type);
  const ctypes::Type& resolved = types_.get(types_.resolve(type));
  const bool is_string =
      types_.is_string(type) ||
      (types_.is_pointer(type) && types_.resolve(types_.pointed_to(type)) == ctypes::kChar);
  if (is_string) {
    argument.kind = Kind::kString;
  } else if (types_.is_pointer(type)) {
    const bool is_function = types_.kind(types_.pointed_to(type)) == TypeKind::kFunction;
    argument.kind = is_function ? Kind::kFunctionPointer : Kind::kPointer;
  } else if (types_.is_integer(type)) {
    argument.kind = resolved.is_bool ? Kind::kBool : Kind::kInteger;
  } else if (types_.is_float(type)) {
    argument.kind = Kind::kFloat;
  }
  switch (argument.kind) {
    case Kind::kString:
    case Kind::kPointer:
    case Kind::kFunctionPointer:
      argument.size = ctypes::kPointerSize;
      break;
    case Kind::kInteger:
      argument.is_signed = types_.is_signed(type);
      [[fallthrough]];
    case Kind::kBool:
    case Kind::kFloat:
      argument.size = static_cast<std::uint8_t>(resolved.size);
      break;
    case Kind::kOther:
      break;
  }
  return argument;
}

std::vector<plan::Provider> Checker::providers() const {
  std::vector<plan::Provider> all;
  for (const auto& [name, provider] : providers_) all.push_back(provider);
  return all;
}

}  // namespace trapline::dlang
