// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/manifest_fields.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;

/// Handles events of the JSON parser, and keeps only expected values: anything else takes no memory
/// and stops the parser.
class Handler {
 public:
  /// `start`: the scope of the text, manifest or file.
  Handler(Draft& draft, Scope start) : draft_(draft), start_(start) {}

  bool null() { return take(nullptr); }
  bool boolean(bool value) { return take(value); }
  bool number_integer(Json::number_integer_t value) { return take(std::int64_t{value}); }
  bool number_unsigned(Json::number_unsigned_t value) { return take(std::uint64_t{value}); }
  bool number_float(Json::number_float_t value, const std::string&) { return take(value); }
  bool string(std::string& value) { return take(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // can't occur in JSON text

  bool start_object(std::size_t) {
    const Scope scope = open_.empty()         ? start_
                        : fields() != nullptr ? field().object
                                              : element_of(open_.back().scope);
    if (scope == Scope::nowhere) refuse("an object", expected());
    if (scope == Scope::fact) draft_.fact = {};
    if (scope == Scope::parameter) draft_.parameter = {};
    if (scope == Scope::file) draft_.file = {};
    if (scope == Scope::piece) draft_.piece = {};
    open_.push_back({scope, 0, nullptr});
    return true;
  }

  bool key(const std::string& name) {
    OpenScope& inner = open_.back();
    const auto found = std::find_if(fields()->begin(), fields()->end(),
                                    [&](const Field& field) { return name == field.key; });
    const std::uint32_t bit = std::uint32_t{1} << (found - fields()->begin());
    if (inner.scope == Scope::manifest && bit > 2 &&
        (inner.seen & format_and_version) != format_and_version)
      fail("does not begin with its format and version");
    if (found == fields()->end()) fail("has the unknown key " + shown(name) + unknown_advice());
    if ((inner.seen & bit) != 0) fail("has the key " + shown(name) + " twice");
    inner.seen |= bit;
    inner.field = &*found;
    return true;
  }

  bool end_object() {
    for (std::size_t i = 0; i < fields()->size(); ++i)
      if ((open_.back().seen >> i & 1) == 0 && !(*fields())[i].is_optional)
        fail(text("has no ", (*fields())[i].key));
    const Scope scope = open_.back().scope;
    open_.pop_back();
    if (scope == Scope::outliers) draft_.manifest.progress.outliers = draft_.outliers;
    if (scope == Scope::piece) draft_.file.pieces.push_back(std::move(draft_.piece));
    if (scope == Scope::fact) draft_.manifest.data.push_back(std::move(draft_.fact));
    if (scope == Scope::parameter) {
      draft_.manifest.parameters.push_back(std::move(draft_.parameter));
      draft_.rows.push_back(draft_.row);
    }
    if (scope == Scope::file && start_ == Scope::manifest)
      draft_.manifest.files.push_back(std::move(draft_.file));
    return true;
  }

  bool start_array(std::size_t) {
    const Scope scope = open_.empty() || fields() == nullptr ? Scope::nowhere : field().array;
    if (scope == Scope::nowhere) refuse("an array", expected());
    open_.push_back({scope, 0, nullptr});
    return true;
  }

  bool end_array() {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    throw Error(text(draft_.title, " is not JSON: ", reason_of(error)));
  }

 private:
  struct OpenScope {
    Scope scope;
    std::uint32_t seen;  ///< for objects: a bit for each field seen
    const Field* field;  ///< for objects: the last key
  };

  const Fields* fields() const { return fields_of(open_.back().scope); }
  const Field& field() const { return *open_.back().field; }

  bool take(const Value& value) {
    try {
      if (open_.empty()) throw InvalidValue{"an object"};
      if (fields() == nullptr)
        append(draft_, open_.back().scope, value);
      else if (field().set != nullptr)
        field().set(draft_, value);
      else
        throw InvalidValue{field().array == Scope::nowhere ? "an object" : "an array"};
    } catch (const InvalidValue& unfit) {
      refuse(shown_value(value), unfit.expected);
    }
    return true;
  }

  /// Describes what is expected in place of the object or array that was found.
  std::string expected() const {
    if (open_.empty()) return "an object";
    const Scope scope = open_.back().scope;
    if (fields() == nullptr)
      return element_of(scope) == Scope::nowhere ? expected_element(scope) : "an object";
    if (field().array != Scope::nowhere) return "an array";
    return field().object != Scope::nowhere ? "an object" : "one value";
  }

  /// Returns a position for messages: "files[0].pieces[17].offset", after the manifest's name.
  std::string where() const {
    std::string path = draft_.title;
    const char* before = ": ";
    for (const OpenScope& inner : open_) {
      if (inner.scope == Scope::data) path += text("[", draft_.manifest.data.size(), "]");
      if (inner.scope == Scope::deck) path += text("[", draft_.deck.size(), "]");
      if (inner.scope == Scope::shape) path += text("[", draft_.parameter.shape.size(), "]");
      if (inner.scope == Scope::checksums) path += text("[", draft_.piece.checksums.size(), "]");
      if (inner.scope == Scope::parameters) path += text("[", draft_.rows.size(), "]");
      if (inner.scope == Scope::files) path += text("[", draft_.manifest.files.size(), "]");
      if (inner.scope == Scope::pieces) path += text("[", draft_.file.pieces.size(), "]");
      if (inner.field != nullptr) {
        path += before + std::string(inner.field->key);
        before = ".";
      }
    }
    return path;
  }

  [[noreturn]] void refuse(const std::string& found, const std::string& wanted) const {
    throw Error(text(where(), " is ", found, "; expected ", wanted));
  }

  /// Throws Error about the innermost object.
  [[noreturn]] void fail(const std::string& what) {
    open_.back().field = nullptr;
    throw Error(text(where(), " ", what));
  }

  std::string unknown_advice() const {
    const std::string& writer = draft_.manifest.program;
    if (writer.empty()) return "";
    return text(": it was written by ", shown(writer), "; use that program, or a later one");
  }

  Draft& draft_;
  Scope start_;
  std::vector<OpenScope> open_;
};

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (std::size_t i = 0; i < lines.size(); ++i) all += (i == 0 ? "" : "\n") + lines[i];
  return all;
}

/// Handles events of any JSON, and keeps only format and version.
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
  bool binary(const Json::binary_t&) { return false; }  // can't occur in JSON text
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
  std::string key_;  // key in the outermost object
  bool is_manifest_ = false;
  std::uint64_t version_ = manifest_version;
};

/// Throws Error for another version. It may have another checksum, or none, so a complete JSON text
/// of another version does not count as damaged.
void require_our_version(const std::string& text, const std::string& title) {
  VersionFinder finder;
  if (Json::sax_parse(text, &finder) && finder.is_manifest())
    require_version(finder.version(), title);
}

/// Throws DamagedError if the checksum is wrong or missing.
void require_checksum(const std::string& text, const std::string& path, const std::string& title) {
  const std::size_t at = checksum_place(text);
  require_undamaged(at != std::string::npos, "'", path,
                    "' is no manifest of a checkpoint, or damaged: ",
                    "it has no checksum of its own near its beginning");
  const std::string expected = text.substr(at, checksum_digits);
  const std::string found = format_hex(checksum_of_text(text));
  require_undamaged(found == expected, title, " is damaged: its checksum is ", found, ", expected ",
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
  // The text is undamaged from here on, so errors are not DamagedErrors.
  Draft draft;
  draft.title = title;
  Handler handler(draft, Scope::manifest);
  Json::sax_parse(text, &handler);
  draft.manifest.deck = joined(draft.deck);
  check_manifest(draft.manifest, draft.rows, draft.title);
  return std::move(draft.manifest);
}

FileEntry read_file_entry(const std::string& text) {
  Draft draft;
  draft.title = "what a rank says of its file";
  Handler handler(draft, Scope::file);
  Json::sax_parse(text, &handler);
  return std::move(draft.file);
}

}  // namespace ostrakon::checkpoint
