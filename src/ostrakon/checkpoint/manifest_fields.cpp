// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/manifest_fields.hpp>

#include <limits>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>

namespace ostrakon::checkpoint {
namespace {

constexpr std::int64_t most_int64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t most_int = std::numeric_limits<int>::max();
constexpr std::size_t most_extents = 32;

std::uint64_t natural(const Value& value) {
  if (const auto* found = std::get_if<std::uint64_t>(&value)) return *found;
  throw InvalidValue{"a whole number from 0 to 2^64 - 1"};
}

std::int64_t whole(const Value& value, std::int64_t least = 0, std::int64_t most = most_int64) {
  const auto* found = std::get_if<std::uint64_t>(&value);
  if (found != nullptr && *found >= static_cast<std::uint64_t>(least) &&
      *found <= static_cast<std::uint64_t>(most))
    return static_cast<std::int64_t>(*found);
  throw InvalidValue{text("a whole number from ", least, " to ", most)};
}

int small(const Value& value, std::int64_t least = 0) {
  return static_cast<int>(whole(value, least, most_int));
}

double real(const Value& value) {
  if (const auto* found = std::get_if<double>(&value)) return *found;
  throw InvalidValue{"a number with a decimal point"};
}

bool flag(const Value& value) {
  if (const auto* found = std::get_if<bool>(&value)) return *found;
  throw InvalidValue{"true or false"};
}

const std::string& words(const Value& value) {
  if (const auto* found = std::get_if<std::string>(&value)) return *found;
  throw InvalidValue{"text"};
}

/// Checks a part of an array's path in a file.
const std::string& array_name(const Value& value) {
  const std::string& found = words(value);
  if (found.empty() || found.find('\0') != std::string::npos) throw InvalidValue{"a name"};
  return found;
}

const std::string& file_name(const Value& value) {
  const std::string& found = words(value);
  if (found.empty() || found == "." || found == ".." ||
      found.find_first_of(std::string("/\\\0", 3)) != std::string::npos)
    throw InvalidValue{"the plain name of a file in the same folder"};
  return found;
}

std::uint64_t hexadecimal(const Value& value) {
  const auto* digits = std::get_if<std::string>(&value);
  const bool fits = digits != nullptr && digits->size() == checksum_digits &&
                    digits->find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!fits) throw InvalidValue{"sixteen digits 0 to 9, a to f"};
  std::uint64_t number = 0;
  for (const char digit : *digits)
    number =
        number << 4 | static_cast<std::uint64_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
  return number;
}

DType read_dtype(const Value& value) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    if (words(value) == name(dtype)) return dtype;
  throw InvalidValue{"fp32 or bf16"};
}

State state_named(const Value& value) {
  for (int i = 0; i < states; ++i)
    if (words(value) == name(static_cast<State>(i))) return static_cast<State>(i);
  throw InvalidValue{"parameters, first_moment, second_moment or average"};
}

void set_format(Draft&, const Value& value) {
  if (words(value) != manifest_format) throw InvalidValue{text("\"", manifest_format, "\"")};
}

void set_version(Draft& draft, const Value& value) { require_version(natural(value), draft.title); }

void set_no_outliers(Draft&, const Value& value) {
  if (!std::holds_alternative<std::nullptr_t>(value)) throw InvalidValue{"an object or null"};
}

template <int state>
void set_number(Draft& draft, const Value& value) {
  draft.manifest.dtypes[state] = read_dtype(value);
}

const Fields manifest_fields = {
    {"format", set_format},
    {"version", set_version},
    {"checksum", [](Draft&, const Value& v) { hexadecimal(v); }},
    {"program", [](Draft& d, const Value& v) { d.manifest.program = words(v); }},
    {"sequence", [](Draft& d, const Value& v) { d.manifest.sequence = whole(v); }},
    {"step", [](Draft& d, const Value& v) { d.manifest.progress.step = whole(v); }},
    {"updates", [](Draft& d, const Value& v) { d.manifest.progress.updates = whole(v); }},
    {"samples", [](Draft& d, const Value& v) { d.manifest.progress.samples = whole(v); }},
    {"seed", [](Draft& d, const Value& v) { d.manifest.progress.seed = natural(v); }},
    {"audited_step", [](Draft& d, const Value& v) { d.manifest.progress.audited_step = whole(v); },
     Scope::nowhere, Scope::nowhere, true},
    {"skipped_in_a_row",
     [](Draft& d, const Value& v) { d.manifest.progress.skipped_in_a_row = whole(v); }},
    {"loss_scale", [](Draft& d, const Value& v) { d.manifest.progress.loss_scale = real(v); }},
    {"good_steps", [](Draft& d, const Value& v) { d.manifest.progress.good_steps = whole(v); }},
    {"outliers", set_no_outliers, Scope::outliers},
    {"plan", [](Draft& d, const Value& v) { d.manifest.plan = hexadecimal(v); }},
    {"ranks", [](Draft& d, const Value& v) { d.manifest.ranks = small(v, 1); }},
    {"optimizer", [](Draft& d, const Value& v) { d.manifest.optimizer = words(v); }},
    {"tokenizer", [](Draft& d, const Value& v) { d.manifest.tokenizer = words(v); }},
    {"data", nullptr, Scope::nowhere, Scope::data, true},
    {"huggingface_config",
     [](Draft& d, const Value& v) { d.manifest.huggingface_config = words(v); }, Scope::nowhere,
     Scope::nowhere, true},
    {"numbers", nullptr, Scope::dtypes},
    {"deck", nullptr, Scope::nowhere, Scope::deck},
    {"parameters", nullptr, Scope::nowhere, Scope::parameters},
    {"files", nullptr, Scope::nowhere, Scope::files}};
const Fields outlier_fields = {
    {"steps", [](Draft& d, const Value& v) { d.outliers.steps = whole(v); }},
    {"loss_mean", [](Draft& d, const Value& v) { d.outliers.loss_mean = real(v); }},
    {"loss_variance", [](Draft& d, const Value& v) { d.outliers.loss_variance = real(v); }},
    {"gradient_norm_mean",
     [](Draft& d, const Value& v) { d.outliers.gradient_norm_mean = real(v); }},
    {"gradient_norm_variance",
     [](Draft& d, const Value& v) { d.outliers.gradient_norm_variance = real(v); }}};

const Fields number_fields = {{"parameters", set_number<0>},
                              {"first_moment", set_number<1>},
                              {"second_moment", set_number<2>},
                              {"average", set_number<3>, Scope::nowhere, Scope::nowhere, true}};

const Fields fact_fields = {{"name", [](Draft& d, const Value& v) { d.fact.name = words(v); }},
                            {"value", [](Draft& d, const Value& v) { d.fact.value = words(v); }}};

const Fields parameter_fields = {
    {"owner", [](Draft& d, const Value& v) { d.parameter.owner = array_name(v); }},
    {"name", [](Draft& d, const Value& v) { d.parameter.name = array_name(v); }},
    {"shape", nullptr, Scope::nowhere, Scope::shape},
    {"type", [](Draft& d, const Value& v) { d.row.type = read_dtype(v); }},
    {"unit", [](Draft& d, const Value& v) { d.parameter.unit = words(v); }},
    {"frozen", [](Draft& d, const Value& v) { d.parameter.frozen = flag(v); }},
    {"column_pieces", [](Draft& d, const Value& v) { d.parameter.column_pieces = whole(v, 1); },
     Scope::nowhere, Scope::nowhere, true},
    {"offset", [](Draft& d, const Value& v) { d.row.offset = whole(v); }}};

const Fields file_fields = {
    {"name", [](Draft& d, const Value& v) { d.file.name = file_name(v); }},
    {"bytes", [](Draft& d, const Value& v) { d.file.bytes = whole(v); }},
    {"structure", [](Draft& d, const Value& v) { d.file.structure = hexadecimal(v); }},
    {"pieces", nullptr, Scope::nowhere, Scope::pieces}};

const Fields piece_fields = {
    {"state", [](Draft& d, const Value& v) { d.piece.slice.state = state_named(v); }},
    {"parameter", [](Draft& d, const Value& v) { d.piece.slice.parameter = small(v); }},
    {"first", [](Draft& d, const Value& v) { d.piece.slice.first = whole(v); }},
    {"count", [](Draft& d, const Value& v) { d.piece.slice.count = whole(v, 1); }},
    {"rank", [](Draft& d, const Value& v) { d.piece.rank = small(v); }},
    {"offset", [](Draft& d, const Value& v) { d.piece.offset = whole(v); }},
    {"checksums", nullptr, Scope::nowhere, Scope::checksums}};

}  // namespace

std::string shown_value(const Value& value) {
  if (const auto* words = std::get_if<std::string>(&value)) return shown(*words);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* below_zero = std::get_if<std::int64_t>(&value)) return text(*below_zero);
  if (const auto* natural = std::get_if<std::uint64_t>(&value)) return text(*natural);
  if (const auto* real = std::get_if<double>(&value)) return nlohmann::json(*real).dump();
  return "null";
}

void require_version(std::uint64_t version, const std::string& title) {
  require(version == manifest_version, title, " is of version ", version,
          "; this program reads version ", manifest_version,
          ": use the program that wrote it, or a later one");
}

const Fields* fields_of(Scope scope) {
  switch (scope) {
    case Scope::manifest:
      return &manifest_fields;
    case Scope::outliers:
      return &outlier_fields;
    case Scope::dtypes:
      return &number_fields;
    case Scope::fact:
      return &fact_fields;
    case Scope::parameter:
      return &parameter_fields;
    case Scope::file:
      return &file_fields;
    case Scope::piece:
      return &piece_fields;
    default:
      return nullptr;
  }
}

void append(Draft& draft, Scope array, const Value& value) {
  switch (array) {
    case Scope::deck:
      draft.deck.push_back(words(value));
      return;
    case Scope::shape:
      if (draft.parameter.shape.size() == most_extents)
        throw InvalidValue{text("at most ", most_extents, " extents")};
      draft.parameter.shape.push_back(whole(value, 1));
      return;
    case Scope::checksums:
      draft.piece.checksums.push_back(hexadecimal(value));
      return;
    default:
      throw InvalidValue{"an object"};
  }
}

Scope element_of(Scope array) {
  switch (array) {
    case Scope::data:
      return Scope::fact;
    case Scope::parameters:
      return Scope::parameter;
    case Scope::files:
      return Scope::file;
    case Scope::pieces:
      return Scope::piece;
    default:
      return Scope::nowhere;
  }
}

const char* expected_element(Scope array) {
  if (array == Scope::deck) return "text";
  return array == Scope::shape ? "a whole number" : "sixteen digits 0 to 9, a to f";
}

}  // namespace ostrakon::checkpoint
