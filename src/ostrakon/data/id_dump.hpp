// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/names.hpp>
#include <string>
#include <vector>

namespace ostrakon::data {

/// Size of the numbers in a dump. Signed numbers of this size are read as well, as no id is
/// negative.
enum class IdType { uint8, uint16, uint32, uint64 };
constexpr Named<IdType> id_type_names[] = {{IdType::uint8, "uint8"},
                                           {IdType::uint16, "uint16"},
                                           {IdType::uint32, "uint32"},
                                           {IdType::uint64, "uint64"}};
constexpr const char* name(IdType type) { return name_in(id_type_names, type); }
constexpr std::int64_t bytes_of(IdType type) { return std::int64_t{1} << static_cast<int>(type); }

/// Token ids that another program wrote: little-endian integers one after another and nothing else,
/// or a NumPy array (.npy) of one dimension.
class IdDump {
 public:
  struct Settings {
    std::int64_t vocabulary = 1;                ///< every id is less than this
    std::optional<std::int64_t> end_of_text{};  ///< the id that ends a document
    std::optional<IdType> type{};  ///< none: a .npy's own, else uint16 where the vocabulary fits
  };

  /// Throws Error where the file is of another kind, as far as that can be known, of a size that
  /// can't be, or where its numbers can't be the end of a document.
  IdDump(const std::string& path, const Settings& settings);

  /// Hands all ids to `use`, in order, some at a time. Throws Error where one is not in the
  /// vocabulary, and where many of them show that they are of another type than was assumed.
  void read(const std::function<void(const std::vector<std::int32_t>& ids)>& use);

  /// After read(): what makes it doubtful that the ids are what they are taken for, a line each.
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
  std::int64_t begin_ = 0;  ///< of the numbers in the file
  std::int64_t count_ = 0;
  std::int64_t reversed_end_ = 0;  ///< the end of a document with its bytes in reverse order

  // Counts of the ids that were read.
  std::array<std::int64_t, 4> not_zero_{};  ///< at positions 0, 1, 2, 3 of every four
  std::int64_t ends_ = 0;
  std::int64_t reversed_ends_ = 0;
  std::int64_t largest_ = 0;
};

}  // namespace ostrakon::data
