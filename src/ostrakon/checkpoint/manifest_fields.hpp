// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>
#include <string>
#include <variant>
#include <vector>

// The content of a manifest: the keys of each object, and the functions that store their values.
// Only manifest*.cpp include this file.

namespace ostrakon::checkpoint {

/// A value of a key, other than an object or an array.
using Value = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string>;

/// Thrown if a value, object or array is not what its key requires.
struct InvalidValue {
  std::string expected;
};

std::string shown_value(const Value& value);

/// The manifest while it is being read.
struct Draft {
  std::string title;  ///< name of the text, for messages: "manifest 'a/manifest.json'"
  Manifest manifest;
  std::vector<ParameterRow> rows;
  std::vector<std::string> deck;
  Progress::Outliers outliers;
  // Elements that are being read.
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

/// A key of an object, and what it takes.
struct Field {
  const char* key;
  void (*set)(Draft&, const Value&);  ///< stores a value; null: the key takes an object or array
  Scope object = Scope::nowhere;
  Scope array = Scope::nowhere;
  bool is_optional = false;
};

using Fields = std::vector<Field>;

/// Bits in a set of seen fields: the first two fields of a manifest.
constexpr std::uint32_t format_and_version = 3;

/// Returns the fields of an object; null for arrays.
const Fields* fields_of(Scope scope);

/// Appends a value to an array. Throws InvalidValue.
void append(Draft& draft, Scope array, const Value& value);

/// Returns the scope of the objects in an array.
Scope element_of(Scope array);

/// Describes the values in an array of values, for messages.
const char* expected_element(Scope array);

/// Throws Error, beginning with `title`, if the version of the format is not this one.
void require_version(std::uint64_t version, const std::string& title);

}  // namespace ostrakon::checkpoint
