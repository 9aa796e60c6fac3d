// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>
#include <string>
#include <variant>
#include <vector>

// What a manifest may contain: the keys of each object, and what is done with their values. For
// manifest*.cpp alone.

namespace ostrakon::checkpoint {

/// What a key can have, other than an object or an array.
using Value = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string>;

/// A value, or an object or array, is not what its key requires.
struct Unfit {
  std::string expected;
};

std::string shown_value(const Value& value);

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

enum class Scope {
  nowhere,
  manifest,
  outliers,
  dtypes,
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
  Scope object = Scope::nowhere;
  Scope array = Scope::nowhere;
  bool is_optional = false;
};

using Fields = std::vector<Field>;

/// Bits of the first two fields of a manifest.
constexpr std::uint32_t format_and_version = 3;

/// The fields of an object; null for arrays.
const Fields* fields_of(Scope scope);

/// One more value of an array. Throws Unfit.
void append(Draft& draft, Scope array, const Value& value);

/// What the objects in an array are.
Scope element_of(Scope array);

/// What each value in an array of values is to be, for messages.
const char* expected_element(Scope array);

/// Throws Error, which begins with `title`, for another version of the format than this one.
void require_version(std::uint64_t version, const std::string& title);

}  // namespace ostrakon::checkpoint
