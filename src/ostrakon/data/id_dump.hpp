// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/names.hpp>
#include <string>
#include <vector>

namespace ostrakon::data {

/// Size of the numbers in a dump. Signed numbers are read as unsigned ones of their size, as no id
/// is negative.
enum class IdType { uint8, uint16, uint32, uint64 };
constexpr Named<IdType> id_type_names[] = {{IdType::uint8, "uint8"},
                                           {IdType::uint16, "uint16"},
                                           {IdType::uint32, "uint32"},
                                           {IdType::uint64, "uint64"}};
constexpr const char* name(IdType type) { return name_in(id_type_names, type); }
constexpr std::int64_t bytes_of(IdType type) { return std::int64_t{1} << static_cast<int>(type); }

/// Token ids written by another program: bare little-endian integers, or a NumPy array (.npy) of
/// one dimension.
class IdDump {
 public:
  struct Settings {
    std::int64_t vocabulary = 1;                ///< every id is less than this
    std::optional<std::int64_t> end_of_text{};  ///< the id that ends a document
    std::optional<IdType> type{};  ///< none: from the .npy, else uint16 if the vocabulary fits
  };

  /// Throws Error if the file is recognizably of another kind, if its size does not match the type,
  /// or if a number of the type can't hold the end of a document.
  IdDump(const std::string& path, const Settings& settings);

  /// Passes all ids to `use`, in order, some at a time. Throws Error if an id is not in the
  /// vocabulary, and if many ids show that their type is another than was assumed.
  void read(const std::function<void(const std::vector<std::int32_t>& ids)>& use);

  /// After read(): reasons to doubt that the ids have the assumed type, one per line.
  std::vector<std::string> doubts() const;

 private:
  void read_numpy_header(const std::string& head);
  void require_ids(const std::string& head);
  void require_whole() const;
  std::vector<std::int32_t> ids_in(const std::vector<unsigned char>& block, std::int64_t first);
  std::string not_an_id(std::uint64_t number, std::int64_t position) const;
  void note(std::int32_t id, std::int64_t position);
  std::string wider_type() const;
  std::string why_wider() const;

  Settings settings_;
  PlainFile file_;
  IdType type_;
  bool is_numpy_ = false;
  bool is_signed_ = false;
  bool is_text_ = false;
  std::int64_t begin_ = 0;  ///< byte offset of the numbers in the file
  std::int64_t count_ = 0;
  std::int64_t reversed_end_ = 0;  ///< end of a document with reversed byte order

  // Counts of the ids that were read.
  std::array<std::int64_t, 4> not_zero_{};  ///< nonzero ids by index modulo 4
  std::int64_t ends_ = 0;
  std::int64_t reversed_ends_ = 0;
  std::int64_t largest_ = 0;
};

}  // namespace ostrakon::data
