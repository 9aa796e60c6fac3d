// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>
#include <utility>
#include <variant>

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t most_int64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t most_int = std::numeric_limits<int>::max();
constexpr std::size_t most_extents = 32;

// --- Values --------------------------------------------------------------------------------------

/// What a key can have, other than an object or an array.
using Value = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string>;

/// A value, or an object or array, is not what its place wants.
struct Unfit {
  std::string expected;
};

std::string shown_value(const Value& value) {
  if (const auto* words = std::get_if<std::string>(&value)) return shown(*words);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* below_zero = std::get_if<std::int64_t>(&value)) return text(*below_zero);
  if (const auto* natural = std::get_if<std::uint64_t>(&value)) return text(*natural);
  if (const auto* real = std::get_if<double>(&value)) return Json(*real).dump();
  return "null";
}

std::uint64_t natural(const Value& value) {
  if (const auto* found = std::get_if<std::uint64_t>(&value)) return *found;
  throw Unfit{"a whole number from 0 to 2^64 - 1"};
}

std::int64_t whole(const Value& value, std::int64_t least = 0, std::int64_t most = most_int64) {
  const auto* found = std::get_if<std::uint64_t>(&value);
  if (found != nullptr && *found >= static_cast<std::uint64_t>(least) &&
      *found <= static_cast<std::uint64_t>(most))
    return static_cast<std::int64_t>(*found);
  throw Unfit{text("a whole number from ", least, " to ", most)};
}

int small(const Value& value, std::int64_t least = 0) {
  return static_cast<int>(whole(value, least, most_int));
}

double real(const Value& value) {
  if (const auto* found = std::get_if<double>(&value)) return *found;
  throw Unfit{"a number with a decimal point"};
}

bool flag(const Value& value) {
  if (const auto* found = std::get_if<bool>(&value)) return *found;
  throw Unfit{"true or false"};
}

const std::string& words(const Value& value) {
  if (const auto* found = std::get_if<std::string>(&value)) return *found;
  throw Unfit{"text"};
}

/// Part of an array's place in a file.
const std::string& array_name(const Value& value) {
  const std::string& found = words(value);
  if (found.empty() || found.find('\0') != std::string::npos) throw Unfit{"a name"};
  return found;
}

const std::string& file_name(const Value& value) {
  const std::string& found = words(value);
  if (found.empty() || found == "." || found == ".." ||
      found.find_first_of(std::string("/\\\0", 3)) != std::string::npos)
    throw Unfit{"the plain name of a file in the same folder"};
  return found;
}

std::uint64_t hexadecimal(const Value& value) {
  const auto* digits = std::get_if<std::string>(&value);
  const bool fits = digits != nullptr && digits->size() == checksum_digits &&
                    digits->find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!fits) throw Unfit{"sixteen digits 0 to 9, a to f"};
  std::uint64_t number = 0;
  for (const char digit : *digits)
    number =
        number << 4 | static_cast<std::uint64_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
  return number;
}

Number number_format(const Value& value) {
  for (const Number number : {Number::fp32, Number::bf16})
    if (words(value) == name(number)) return number;
  throw Unfit{"fp32 or bf16"};
}

State state_named(const Value& value) {
  for (int i = 0; i < states; ++i)
    if (words(value) == name(static_cast<State>(i))) return static_cast<State>(i);
  throw Unfit{"parameters, first_moment or second_moment"};
}

// --- What may stand where ------------------------------------------------------------------------

/// What has been read so far.
struct Draft {
  std::string title;  ///< what is read, for messages: "manifest 'a/manifest.json'"
  Manifest manifest;
  std::vector<ParameterRow> rows;
  std::vector<std::string> deck;
  Progress::Outliers outliers;
  // What is being read.
  Fact fact;
  ParameterEntry parameter;
  ParameterRow row;
  FileEntry file;
  PieceEntry piece;
};

enum class Place {
  nowhere,
  manifest,
  outliers,
  numbers,
  deck,
  data,
  fact,
  parameters,
  parameter,
  shape,
  files,
  file,
  pieces,
  piece,
  checksums
};

/// A key of an object: what it may have.
struct Field {
  const char* key;
  void (*set)(Draft&, const Value&);  ///< a value; null: it must be an object or an array
  Place object = Place::nowhere;
  Place array = Place::nowhere;
  bool is_optional = false;
};

using Fields = std::vector<Field>;

void set_format(Draft&, const Value& value) {
  if (words(value) != manifest_format) throw Unfit{text("\"", manifest_format, "\"")};
}

void require_version(std::uint64_t version, const std::string& title) {
  require(version == manifest_version, title, " is of version ", version,
          "; this program reads version ", manifest_version,
          ": use the program that wrote it, or a later one");
}

void set_version(Draft& draft, const Value& value) { require_version(natural(value), draft.title); }

void set_no_outliers(Draft&, const Value& value) {
  if (!std::holds_alternative<std::nullptr_t>(value)) throw Unfit{"an object or null"};
}

template <int state>
void set_number(Draft& draft, const Value& value) {
  draft.manifest.numbers[state] = number_format(value);
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
    {"skipped_in_a_row",
     [](Draft& d, const Value& v) { d.manifest.progress.skipped_in_a_row = whole(v); }},
    {"loss_scale", [](Draft& d, const Value& v) { d.manifest.progress.loss_scale = real(v); }},
    {"good_steps", [](Draft& d, const Value& v) { d.manifest.progress.good_steps = whole(v); }},
    {"outliers", set_no_outliers, Place::outliers},
    {"plan", [](Draft& d, const Value& v) { d.manifest.plan = hexadecimal(v); }},
    {"ranks", [](Draft& d, const Value& v) { d.manifest.ranks = small(v, 1); }},
    {"optimizer", [](Draft& d, const Value& v) { d.manifest.optimizer = words(v); }},
    {"tokenizer", [](Draft& d, const Value& v) { d.manifest.tokenizer = words(v); }},
    {"data", nullptr, Place::nowhere, Place::data, true},
    {"huggingface_config",
     [](Draft& d, const Value& v) { d.manifest.huggingface_config = words(v); }, Place::nowhere,
     Place::nowhere, true},
    {"numbers", nullptr, Place::numbers},
    {"deck", nullptr, Place::nowhere, Place::deck},
    {"parameters", nullptr, Place::nowhere, Place::parameters},
    {"files", nullptr, Place::nowhere, Place::files}};
constexpr std::uint32_t format_and_version = 3;  // bits of the first two

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
                              {"second_moment", set_number<2>}};

const Fields fact_fields = {{"name", [](Draft& d, const Value& v) { d.fact.name = words(v); }},
                            {"value", [](Draft& d, const Value& v) { d.fact.value = words(v); }}};

const Fields parameter_fields = {
    {"owner", [](Draft& d, const Value& v) { d.parameter.owner = array_name(v); }},
    {"name", [](Draft& d, const Value& v) { d.parameter.name = array_name(v); }},
    {"shape", nullptr, Place::nowhere, Place::shape},
    {"type", [](Draft& d, const Value& v) { d.row.type = number_format(v); }},
    {"unit", [](Draft& d, const Value& v) { d.parameter.unit = words(v); }},
    {"frozen", [](Draft& d, const Value& v) { d.parameter.frozen = flag(v); }},
    {"offset", [](Draft& d, const Value& v) { d.row.offset = whole(v); }}};

const Fields file_fields = {
    {"name", [](Draft& d, const Value& v) { d.file.name = file_name(v); }},
    {"bytes", [](Draft& d, const Value& v) { d.file.bytes = whole(v); }},
    {"structure", [](Draft& d, const Value& v) { d.file.structure = hexadecimal(v); }},
    {"pieces", nullptr, Place::nowhere, Place::pieces}};

const Fields piece_fields = {
    {"state", [](Draft& d, const Value& v) { d.piece.slice.state = state_named(v); }},
    {"parameter", [](Draft& d, const Value& v) { d.piece.slice.parameter = small(v); }},
    {"first", [](Draft& d, const Value& v) { d.piece.slice.first = whole(v); }},
    {"count", [](Draft& d, const Value& v) { d.piece.slice.count = whole(v, 1); }},
    {"rank", [](Draft& d, const Value& v) { d.piece.rank = small(v); }},
    {"offset", [](Draft& d, const Value& v) { d.piece.offset = whole(v); }},
    {"checksums", nullptr, Place::nowhere, Place::checksums}};

/// Of an object; null for arrays.
const Fields* fields_of(Place place) {
  switch (place) {
    case Place::manifest:
      return &manifest_fields;
    case Place::outliers:
      return &outlier_fields;
    case Place::numbers:
      return &number_fields;
    case Place::fact:
      return &fact_fields;
    case Place::parameter:
      return &parameter_fields;
    case Place::file:
      return &file_fields;
    case Place::piece:
      return &piece_fields;
    default:
      return nullptr;
  }
}

/// One more value of an array.
void append(Draft& draft, Place array, const Value& value) {
  switch (array) {
    case Place::deck:
      draft.deck.push_back(words(value));
      return;
    case Place::shape:
      if (draft.parameter.shape.size() == most_extents)
        throw Unfit{text("at most ", most_extents, " extents")};
      draft.parameter.shape.push_back(whole(value, 1));
      return;
    case Place::checksums:
      draft.piece.checksums.push_back(hexadecimal(value));
      return;
    default:
      throw Unfit{"an object"};
  }
}

/// Of an array: what objects in it are.
Place element_of(Place array) {
  switch (array) {
    case Place::data:
      return Place::fact;
    case Place::parameters:
      return Place::parameter;
    case Place::files:
      return Place::file;
    case Place::pieces:
      return Place::piece;
    default:
      return Place::nowhere;
  }
}

const char* expected_element(Place array) {
  if (array == Place::deck) return "text";
  return array == Place::shape ? "a whole number" : "sixteen digits 0 to 9, a to f";
}

// --- Reading -------------------------------------------------------------------------------------

/// Follows the JSON as it is read, and keeps what it is meant to hold: whatever else a text says
/// takes no memory and ends the reading.
class Handler {
 public:
  /// `start`: what the text is, manifest or file.
  Handler(Draft& draft, Place start) : draft_(draft), start_(start) {}

  bool null() { return take(nullptr); }
  bool boolean(bool value) { return take(value); }
  bool number_integer(Json::number_integer_t value) { return take(std::int64_t{value}); }
  bool number_unsigned(Json::number_unsigned_t value) { return take(std::uint64_t{value}); }
  bool number_float(Json::number_float_t value, const std::string&) { return take(value); }
  bool string(std::string& value) { return take(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // JSON text has none

  bool start_object(std::size_t) {
    const Place place = levels_.empty()       ? start_
                        : fields() != nullptr ? field().object
                                              : element_of(levels_.back().place);
    if (place == Place::nowhere) refuse("an object", expected());
    if (place == Place::fact) draft_.fact = {};
    if (place == Place::parameter) draft_.parameter = {};
    if (place == Place::file) draft_.file = {};
    if (place == Place::piece) draft_.piece = {};
    levels_.push_back({place, 0, nullptr});
    return true;
  }

  bool key(const std::string& name) {
    Level& level = levels_.back();
    const auto found = std::find_if(fields()->begin(), fields()->end(),
                                    [&](const Field& field) { return name == field.key; });
    const std::uint32_t bit = std::uint32_t{1} << (found - fields()->begin());
    if (level.place == Place::manifest && bit > 2 &&
        (level.seen & format_and_version) != format_and_version)
      fail("does not begin with its format and version");
    if (found == fields()->end()) fail("has the unknown key " + shown(name) + unknown_advice());
    if ((level.seen & bit) != 0) fail("has the key " + shown(name) + " twice");
    level.seen |= bit;
    level.field = &*found;
    return true;
  }

  bool end_object() {
    for (std::size_t i = 0; i < fields()->size(); ++i)
      if ((levels_.back().seen >> i & 1) == 0 && !(*fields())[i].is_optional)
        fail(text("has no ", (*fields())[i].key));
    const Place place = levels_.back().place;
    levels_.pop_back();
    if (place == Place::outliers) draft_.manifest.progress.outliers = draft_.outliers;
    if (place == Place::piece) draft_.file.pieces.push_back(std::move(draft_.piece));
    if (place == Place::fact) draft_.manifest.data.push_back(std::move(draft_.fact));
    if (place == Place::parameter) {
      draft_.manifest.parameters.push_back(std::move(draft_.parameter));
      draft_.rows.push_back(draft_.row);
    }
    if (place == Place::file && start_ == Place::manifest)
      draft_.manifest.files.push_back(std::move(draft_.file));
    return true;
  }

  bool start_array(std::size_t) {
    const Place place = levels_.empty() || fields() == nullptr ? Place::nowhere : field().array;
    if (place == Place::nowhere) refuse("an array", expected());
    levels_.push_back({place, 0, nullptr});
    return true;
  }

  bool end_array() {
    levels_.pop_back();
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    throw Error(text(draft_.title, " is not JSON: ", reason_of(error)));
  }

 private:
  struct Level {
    Place place;
    std::uint32_t seen;  ///< of an object: a bit for each of its fields
    const Field* field;  ///< of an object: the last key
  };

  const Fields* fields() const { return fields_of(levels_.back().place); }
  const Field& field() const { return *levels_.back().field; }

  bool take(const Value& value) {
    try {
      if (levels_.empty()) throw Unfit{"an object"};
      if (fields() == nullptr)
        append(draft_, levels_.back().place, value);
      else if (field().set != nullptr)
        field().set(draft_, value);
      else
        throw Unfit{field().array == Place::nowhere ? "an object" : "an array"};
    } catch (const Unfit& unfit) {
      refuse(shown_value(value), unfit.expected);
    }
    return true;
  }

  /// Where neither the object nor the array that was found is.
  std::string expected() const {
    if (levels_.empty()) return "an object";
    const Place place = levels_.back().place;
    if (fields() == nullptr)
      return element_of(place) == Place::nowhere ? expected_element(place) : "an object";
    if (field().array != Place::nowhere) return "an array";
    return field().object != Place::nowhere ? "an object" : "one value";
  }

  /// "files[0].pieces[17].offset", after the manifest's name.
  std::string where() const {
    std::string place = draft_.title;
    const char* before = ": ";
    for (const Level& level : levels_) {
      if (level.place == Place::data) place += text("[", draft_.manifest.data.size(), "]");
      if (level.place == Place::deck) place += text("[", draft_.deck.size(), "]");
      if (level.place == Place::shape) place += text("[", draft_.parameter.shape.size(), "]");
      if (level.place == Place::checksums) place += text("[", draft_.piece.checksums.size(), "]");
      if (level.place == Place::parameters) place += text("[", draft_.rows.size(), "]");
      if (level.place == Place::files) place += text("[", draft_.manifest.files.size(), "]");
      if (level.place == Place::pieces) place += text("[", draft_.file.pieces.size(), "]");
      if (level.field != nullptr) {
        place += before + std::string(level.field->key);
        before = ".";
      }
    }
    return place;
  }

  [[noreturn]] void refuse(const std::string& found, const std::string& wanted) const {
    throw Error(text(where(), " is ", found, "; expected ", wanted));
  }

  /// Says something of the innermost object.
  [[noreturn]] void fail(const std::string& what) {
    levels_.back().field = nullptr;
    throw Error(text(where(), " ", what));
  }

  std::string unknown_advice() const {
    const std::string& writer = draft_.manifest.program;
    if (writer.empty()) return "";
    return text(": it was written by ", shown(writer), "; use that program, or a later one");
  }

  Draft& draft_;
  Place start_;
  std::vector<Level> levels_;
};

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (std::size_t i = 0; i < lines.size(); ++i) all += (i == 0 ? "" : "\n") + lines[i];
  return all;
}

/// Follows any JSON as it is read, and keeps the format and version that it says it has.
class VersionFinder {
 public:
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(Json::number_integer_t) { return true; }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (depth_ == 1 && key_ == "version") version_ = value;
    return true;
  }
  bool number_float(Json::number_float_t, const std::string&) { return true; }
  bool string(const std::string& value) {
    if (depth_ == 1 && key_ == "format") is_manifest_ = value == manifest_format;
    return true;
  }
  bool binary(const Json::binary_t&) { return false; }  // JSON text has none
  bool start_object(std::size_t) { return begin(); }
  bool key(const std::string& name) {
    if (depth_ == 1) key_ = name;
    return true;
  }
  bool end_object() { return end(); }
  bool start_array(std::size_t) { return begin(); }
  bool end_array() { return end(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) {
    return false;
  }

  bool is_manifest() const { return is_manifest_; }
  std::uint64_t version() const { return version_; }

 private:
  bool begin() {
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  std::string key_;  // of the outermost object
  bool is_manifest_ = false;
  std::uint64_t version_ = manifest_version;
};

/// Another version may have another checksum, or none: a text that is whole, as far as JSON tells,
/// is not called damaged then.
void require_our_version(const std::string& text, const std::string& title) {
  VersionFinder finder;
  if (Json::sax_parse(text, &finder) && finder.is_manifest())
    require_version(finder.version(), title);
}

/// Throws DamagedError.
void require_checksum(const std::string& text, const std::string& path, const std::string& title) {
  const std::size_t place = checksum_place(text);
  require_sound(place != std::string::npos, "'", path,
                "' is no manifest of a checkpoint, or damaged: ",
                "it has no checksum of its own near its beginning");
  const std::string expected = text.substr(place, checksum_digits);
  const std::string found = format_hex(checksum_of_text(text));
  require_sound(found == expected, title, " is damaged: its checksum is ", found, ", expected ",
                shown(expected));
}

}  // namespace

Manifest read_manifest(const std::string& text, const std::string& path) {
  const std::string title = "manifest '" + path + "'";
  try {
    require_checksum(text, path, title);
  } catch (const DamagedError&) {
    require_our_version(text, title);
    throw;
  }
  // What can't be understood from here on is as it was written.
  Draft draft;
  draft.title = title;
  Handler handler(draft, Place::manifest);
  Json::sax_parse(text, &handler);
  draft.manifest.deck = joined(draft.deck);
  check_manifest(draft.manifest, draft.rows, draft.title);
  return std::move(draft.manifest);
}

FileEntry read_file_entry(const std::string& text) {
  Draft draft;
  draft.title = "what a rank says of its file";
  Handler handler(draft, Place::file);
  Json::sax_parse(text, &handler);
  return std::move(draft.file);
}

}  // namespace ostrakon::checkpoint
