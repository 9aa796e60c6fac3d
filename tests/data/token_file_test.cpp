// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/data/token_file.hpp>
#include <random>

#include "../support/scratch_folder.hpp"

namespace ostrakon::data {
namespace {

using testing::error_of;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

const Provenance provenance = {{"a.txt", "b.txt"}, "test 1.0", "test --of writing"};

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary) {
  std::mt19937 generator(1);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(
        static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(vocabulary)));
  }
  tokens.back() = static_cast<std::int32_t>(vocabulary - 1);
  return tokens;
}

/// Writes documents of 7, 8, 9, ... tokens.
void write_tokens(const std::string& path, const std::vector<std::int32_t>& tokens,
                  std::int64_t vocabulary) {
  TokenFileWriter writer(path, "test", vocabulary, provenance);
  const auto count = static_cast<std::int64_t>(tokens.size());
  std::int64_t length = 7;
  for (std::int64_t begin = 0; begin < count; begin += length++) {
    writer.append(tokens.data() + begin, std::min(length, count - begin));
    writer.add_text_bytes(2);
    writer.end_document();
  }
  writer.finish();
}

std::vector<std::int32_t> read_all(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.info().token_count));
  file.read(0, file.info().token_count, tokens.data());
  return tokens;
}

std::string open_error(const std::string& path) {
  return error_of([&] { TokenFile file(path); });
}

std::string verify_error(const std::string& path) {
  return error_of([&] { TokenFile(path).verify(); });
}

TEST(Checksum, IsXxh3) {
  hdf5::Checksum checksum;
  EXPECT_EQ(checksum.hex(), "2d06800538d394c2");  // XXH3_64bits of nothing
}

TEST(TokenFile, StoresTheSmallestType) {
  const ScratchFolder folder;
  const std::vector<std::pair<std::int64_t, std::string>> cases = {
      {1, "uint8"},      {256, "uint8"},     {257, "uint16"},       {65536, "uint16"},
      {65537, "uint32"}, {128256, "uint32"}, {2147483647, "uint32"}};
  for (const auto& [vocabulary, type] : cases) {
    const std::string path = folder.file("tokens.h5");
    const std::vector<std::int32_t> tokens = random_tokens(1000, vocabulary);
    write_tokens(path, tokens, vocabulary);
    const TokenFile file(path);
    file.verify();
    EXPECT_EQ(file.info().stored_as, type);
    EXPECT_EQ(file.info().vocabulary, vocabulary);
    EXPECT_EQ(read_all(file), tokens);
  }
}

TEST(TokenFile, ReadsAnywhere) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.h5");
  const std::vector<std::int32_t> tokens = random_tokens(100'003, 257);  // several chunks
  write_tokens(path, tokens, 257);
  const TokenFile file(path);
  EXPECT_EQ(read_all(file), tokens);
  std::vector<std::int32_t> window(500);
  for (const std::int64_t begin : {0, 1, 32500, 65500, 99503}) {
    file.read(begin, 500, window.data());
    EXPECT_TRUE(std::equal(window.begin(), window.end(), tokens.begin() + begin));
  }
  file.read(100'003, 0, nullptr);
  EXPECT_HAS(error_of([&] { file.read(99'504, 500, window.data()); }),
             "elements 99504 to 100004 of /tokens asked for; it has 100003");
  EXPECT_NE(error_of([&] { file.read(-1, 2, window.data()); }), "no error");
}

TEST(TokenFile, KeepsDocumentsAndProvenance) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.h5");
  const std::vector<std::int32_t> tokens = random_tokens(50'000, 300);
  write_tokens(path, tokens, 300);
  const TokenFile file(path);
  const TokenFileInfo& info = file.info();
  EXPECT_EQ(info.tokenizer, "test");
  EXPECT_EQ(info.token_count, 50'000);
  EXPECT_EQ(info.byte_count, 2 * info.document_count);
  EXPECT_EQ(info.sources, "a.txt\nb.txt");
  EXPECT_EQ(info.program, "test 1.0");
  EXPECT_EQ(info.command_line, "test --of writing");
  EXPECT_EQ(info.created.size(), 20u);

  std::int64_t begin = 0;
  for (std::int64_t index = 0; index < info.document_count; ++index) {
    const TokenFile::Range range = file.document(index);
    ASSERT_EQ(range.begin, begin);
    ASSERT_EQ(range.end, std::min<std::int64_t>(begin + 7 + index, 50'000));
    begin = range.end;
  }
  EXPECT_EQ(begin, 50'000);
  EXPECT_NE(error_of([&] { file.document(info.document_count); }), "no error");
  EXPECT_NE(error_of([&] { file.document(-1); }), "no error");
}

// --- Masks ---------------------------------------------------------------------------------------

TEST(TokenFile, KeepsWhichTokensCount) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.h5");
  const std::vector<std::int32_t> tokens = random_tokens(100'000, 300);
  struct Row {
    std::int64_t first_masked;  // before it counts are not given, or given and all 1
    bool gives_counts;
    bool has_mask;
  };
  for (const Row& row :
       {Row{0, true, true}, Row{5, false, true}, Row{40'000, true, true}, Row{70'001, false, true},
        Row{100'000, true, false}, Row{100'000, false, false}}) {
    std::vector<std::uint8_t> counts(tokens.size(), 1);
    std::mt19937 generator(3);
    for (std::size_t i = static_cast<std::size_t>(row.first_masked); i < counts.size(); ++i)
      counts[i] = generator() % 3 == 0 ? 1 : 0;
    TokenFileWriter writer(path, "test", 300, provenance);
    writer.append(tokens.data(), row.first_masked, row.gives_counts ? counts.data() : nullptr);
    writer.end_document();
    for (std::int64_t at = row.first_masked; at < 100'000; at += 777)
      writer.append(tokens.data() + at, std::min<std::int64_t>(777, 100'000 - at),
                    counts.data() + at);
    writer.finish();
    const TokenFile file(path);
    file.verify();
    EXPECT_EQ(file.info().has_mask, row.has_mask);
    EXPECT_EQ(hdf5::File::open(path, "file").root().integer_attribute("version"),
              row.has_mask ? 2 : 1);
    EXPECT_EQ(file.info().counted, std::count(counts.begin(), counts.end(), 1));
    EXPECT_EQ(writer.counted(), file.info().counted);
    EXPECT_EQ(read_all(file), tokens);
    std::vector<std::int32_t> read(tokens.size());
    std::vector<std::uint8_t> found(tokens.size());
    file.read(0, 100'000, read.data(), found.data());
    EXPECT_EQ(found, counts);
    file.read(69'000, 2000, read.data(), found.data());
    EXPECT_TRUE(std::equal(found.begin(), found.begin() + 2000, counts.begin() + 69'000));
  }
}

TEST(TokenFile, AppearsOnlyWhenFinished) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.h5");
  write_tokens(path, random_tokens(100, 257), 257);
  const std::string before = read_bytes(path);
  {
    TokenFileWriter writer(path, "byte", 257, provenance);
    const std::int32_t token = 3;
    writer.append(&token, 1);
  }
  EXPECT_EQ(read_bytes(path), before);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(TokenFile, IsCompleteBeforeItHasItsName) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.h5");
  const std::int32_t token = 3;
  {
    TokenFileWriter writer(path, "test", 257, provenance);
    writer.append(&token, 1);
    writer.complete();
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_TRUE(std::filesystem::exists(path + ".partial"));
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  TokenFileWriter writer(path, "test", 257, provenance);
  writer.append(&token, 1);
  writer.complete();
  writer.finish();
  EXPECT_EQ(verify_error(path), "no error");
  EXPECT_FALSE(TokenFile(path).info().byte_count.has_value());
  EXPECT_FALSE(TokenFile(path).info().bytes_per_token().has_value());
}

TEST(TokenFile, WriterRefuses) {
  const ScratchFolder folder;
  const std::int32_t token = 257;
  EXPECT_HAS(error_of([&] {
               TokenFileWriter(folder.file("x.h5"), "byte", 257, provenance).append(&token, 1);
             }),
             "token 257 at position 0 is not in its vocabulary of 257");
  EXPECT_HAS(
      error_of([&] {
        const std::uint8_t two = 2;
        TokenFileWriter(folder.file("x.h5"), "byte", 300, provenance).append(&token, 1, &two);
      }),
      "its loss mask has 2 at position 0; expected 0 or 1");
  EXPECT_HAS(
      error_of([&] { TokenFileWriter(folder.file("x.h5"), "byte", 257, provenance).finish(); }),
      "no tokens to write to");
  EXPECT_HAS(error_of([&] { TokenFileWriter(folder.file("no/x.h5"), "byte", 257, provenance); }),
             "No such file or directory");
  EXPECT_HAS(error_of([&] { TokenFileWriter(folder.file(""), "byte", 257, provenance); }),
             "a folder has that name");
}

// --- Bad files -----------------------------------------------------------------------------------

TEST(TokenFile, RefusesWhatIsNoTokenFile) {
  const ScratchFolder folder;
  EXPECT_HAS(open_error(folder.file("none.h5")), "none.h5' does not exist");
  EXPECT_HAS(open_error(folder.file("")), "' is a folder; expected a token file");
  write_bytes(folder.file("empty.h5"), "");
  EXPECT_HAS(open_error(folder.file("empty.h5")), "' is empty (0 bytes)");
  write_bytes(folder.file("text.h5"), "To be, or not to be, that is the question");
  EXPECT_HAS(open_error(folder.file("text.h5")), "text.h5' is not an HDF5 file");
  write_bytes(folder.file("short.h5"), "To");
  EXPECT_HAS(open_error(folder.file("short.h5")), "' is not an HDF5 file");
  EXPECT_HAS(open_error("/dev/null"), "'/dev/null' is not a plain file");

  hdf5::File::create(folder.file("other.h5"), "file").commit();
  EXPECT_HAS(open_error(folder.file("other.h5")), "it has no attribute 'format'");
  hdf5::File weights = hdf5::File::create(folder.file("weights.h5"), "file");
  weights.write_format("ostrakon-weights", 1);
  weights.commit();
  EXPECT_HAS(open_error(folder.file("weights.h5")),
             "its format is 'ostrakon-weights', expected 'ostrakon-tokens'");
}

/// A token file of which each part may be wrong.
struct Crafted {
  std::int64_t version = 1;
  std::int64_t vocabulary = 257;
  std::int64_t token_count = 4;
  std::vector<std::int32_t> tokens = {1, 2, 3, 256};
  std::vector<std::int64_t> offsets = {0, 2, 4};
  std::string tokenizer = "byte";
  std::optional<std::int64_t> byte_count = 3;
  bool provenance = true;
  std::vector<std::uint8_t> mask = {};  ///< empty: there is none
  hdf5::Type mask_type = hdf5::Type::uint8;
  std::int64_t counted = 3;
  std::string mask_checksum;  ///< empty: the correct one
  std::string scalar;         ///< name of a data set that is a single number instead of an array
  std::string checksum;       ///< empty: the correct one
  hdf5::Type type = hdf5::Type::uint16;
  hdf5::Type memory = hdf5::Type::int32;  // type in which `tokens` are written

  std::string write(const std::string& path) const {
    hdf5::File file = hdf5::File::create(path, "token file");
    file.write_format("ostrakon-tokens", version);
    hdf5::Object root = file.root();
    root.write_attribute("tokenizer", tokenizer);
    for (const char* name : {"sources", "created", "program", "command_line"})
      if (provenance) root.write_attribute(name, std::string("here"));
    hdf5::Checksum right;
    right.add(tokens.data(), static_cast<std::int64_t>(4 * tokens.size()));
    root.write_attribute("checksum", checksum.empty() ? right.hex() : checksum);
    root.write_attribute("vocabulary", vocabulary);
    root.write_attribute("token_count", token_count);
    if (byte_count) root.write_attribute("byte_count", *byte_count);
    if (scalar == "/tokens")
      file.create_array(scalar, type, {});
    else
      file.create_series("/tokens", type, 10)
          .append(memory, tokens.data(), static_cast<std::int64_t>(tokens.size()));
    if (scalar == "/document_offsets")
      file.create_array(scalar, hdf5::Type::int64, {});
    else
      file.create_series("/document_offsets", hdf5::Type::int64, 10)
          .append(hdf5::Type::int64, offsets.data(), static_cast<std::int64_t>(offsets.size()));
    if (!mask.empty()) {
      const auto size = static_cast<std::int64_t>(mask.size());
      file.create_series("/loss_mask", mask_type, 10).append(hdf5::Type::uint8, mask.data(), size);
      hdf5::Checksum of_mask;
      of_mask.add(mask.data(), size);
      root.write_attribute("counted_token_count", counted);
      root.write_attribute("loss_mask_checksum",
                           mask_checksum.empty() ? of_mask.hex() : mask_checksum);
    }
    file.commit();
    return path;
  }
};

TEST(TokenFile, RefusesWhatCannotBe) {
  const ScratchFolder folder;
  const std::string path = folder.file("crafted.h5");
  Crafted().write(path);
  EXPECT_EQ(verify_error(path), "no error");

  Crafted crafted;
  crafted.version = 3;
  EXPECT_HAS(open_error(crafted.write(path)),
             "' is a token file of version 3; this program reads versions 1 to 2");
  crafted.version = 2;
  EXPECT_HAS(open_error(crafted.write(path)), "has no data set /loss_mask");
  Crafted masked;
  masked.version = 2;
  masked.mask = {1, 1, 0, 1};
  EXPECT_EQ(verify_error(masked.write(path)), "no error");
  crafted = masked;
  crafted.mask = {1, 1, 0};
  EXPECT_HAS(open_error(crafted.write(path)),
             "/loss_mask has 3 elements; expected 4, one for each token");
  crafted = masked;
  crafted.mask_type = hdf5::Type::uint16;
  EXPECT_HAS(open_error(crafted.write(path)), "/loss_mask holds uint16 in 1 dimensions");
  crafted = masked;
  crafted.counted = 5;
  EXPECT_HAS(open_error(crafted.write(path)), "'counted_token_count' says 5; expected 0 to 4");
  crafted.counted = 2;
  EXPECT_HAS(verify_error(crafted.write(path)), "'counted_token_count' says 2, but 3 tokens count");
  crafted = masked;
  crafted.mask = {1, 1, 2, 0};
  EXPECT_HAS(verify_error(crafted.write(path)), "its loss mask has 2 at position 2");
  crafted = masked;
  crafted.mask_checksum = "0123456789abcdef";
  EXPECT_HAS(verify_error(crafted.write(path)), "the checksum of its loss mask is");
  crafted = {};
  crafted.token_count = 5;
  EXPECT_HAS(open_error(crafted.write(path)),
             "holds 4 tokens, but its attribute 'token_count' says 5");
  crafted = {};
  crafted.tokens = {};
  crafted.token_count = 0;
  EXPECT_HAS(open_error(crafted.write(path)), "is empty: it holds no tokens");
  crafted = {};
  crafted.vocabulary = 0;
  EXPECT_HAS(open_error(crafted.write(path)), "a vocabulary of 0");
  crafted = {};
  crafted.type = hdf5::Type::float32;
  EXPECT_HAS(open_error(crafted.write(path)), "/tokens holds float32");
  crafted = {};
  crafted.offsets = {0};
  EXPECT_HAS(open_error(crafted.write(path)), "has no documents");
  for (const char* name : {"/tokens", "/document_offsets"}) {
    crafted = {};
    crafted.scalar = name;
    EXPECT_HAS(open_error(crafted.write(path)),
               "/tokens and /document_offsets must have one dimension each");
  }
  for (const std::int64_t bytes : {-1, 0}) {
    crafted = {};
    crafted.byte_count = bytes;
    EXPECT_HAS(open_error(crafted.write(path)), "its attribute 'byte_count' says " +
                                                    std::to_string(bytes) +
                                                    "; expected at least 1, or no such attribute");
  }
}

TEST(TokenFile, TakesFilesThatDoNotSayWhereTheyComeFrom) {
  const ScratchFolder folder;
  Crafted crafted;
  crafted.tokenizer = "another";
  crafted.byte_count = std::nullopt;
  crafted.provenance = false;
  const std::string path = crafted.write(folder.file("crafted.h5"));
  EXPECT_EQ(verify_error(path), "no error");
  EXPECT_EQ(TokenFile(path).info().program, "");
  EXPECT_FALSE(TokenFile(path).info().bytes_per_token().has_value());
}

TEST(TokenFile, VerifyFindsWhatOpeningDoesNot) {
  const ScratchFolder folder;
  const std::string path = folder.file("crafted.h5");
  Crafted crafted;
  crafted.vocabulary = 256;
  crafted.write(path);
  EXPECT_EQ(open_error(path), "no error");
  EXPECT_HAS(verify_error(path), "token 256 at position 3 is not in its vocabulary of 256");
  std::int32_t tokens[4];
  EXPECT_HAS(error_of([&] { TokenFile(path).read(2, 2, tokens); }), "at position 3");
  EXPECT_EQ(error_of([&] { TokenFile(path).read(0, 3, tokens); }), "no error");

  crafted = {};
  crafted.type = hdf5::Type::uint32;
  crafted.tokens[1] = -2;  // stored as 0, as HDF5 clips it
  EXPECT_HAS(verify_error(crafted.write(path)), "the checksum of its tokens is");
  crafted = {};
  crafted.type = crafted.memory = hdf5::Type::uint32;
  crafted.vocabulary = 2147483647;
  crafted.tokens[1] = -1;  // stored as 4294967295
  EXPECT_HAS(verify_error(crafted.write(path)), "token 4294967295 at position 1");
  EXPECT_HAS(error_of([&] { TokenFile(path).read(0, 2, tokens); }), "token 4294967295");
  crafted = {};
  crafted.byte_count = 4;
  EXPECT_HAS(verify_error(crafted.write(path)),
             "its attribute 'byte_count' says 4, but it holds 3 bytes of text");
  crafted.byte_count = std::nullopt;  // may be unknown
  EXPECT_EQ(verify_error(crafted.write(path)), "no error");
  crafted = {};
  crafted.checksum = "0123456789abcdef";
  EXPECT_HAS(verify_error(crafted.write(path)), "expected 0123456789abcdef");

  for (const std::vector<std::int64_t>& offsets : std::vector<std::vector<std::int64_t>>{
           {0, 5, 4}, {0, 2, 2, 4}, {1, 4}, {0, 3}, {0, 2, 9}, {-1, 4}}) {
    crafted = {};
    crafted.offsets = offsets;
    EXPECT_HAS(verify_error(crafted.write(path)), "is damaged");
  }
}

class DamagedTokenFile : public ::testing::Test {
 protected:
  void SetUp() override {
    write_tokens(path_, tokens_, 257);
    bytes_ = read_bytes(path_);
    info_ = TokenFile(path_).info();
  }

  /// Returns whether the damage is detected; the test fails if it is not and other data is read.
  bool detected(const std::string& damaged) {
    write_bytes(path_, damaged);
    try {
      const TokenFile file(path_);
      file.verify();
      const TokenFileInfo& found = file.info();
      EXPECT_EQ(read_all(file), tokens_);
      EXPECT_EQ(found.vocabulary, info_.vocabulary);
      EXPECT_EQ(found.byte_count, info_.byte_count);
      EXPECT_EQ(found.document_count, info_.document_count);
      EXPECT_EQ(found.tokenizer, info_.tokenizer);
      EXPECT_EQ(found.sources, info_.sources);
      EXPECT_EQ(found.created, info_.created);
      EXPECT_EQ(found.program, info_.program);
      EXPECT_EQ(found.command_line, info_.command_line);
      return false;
    } catch (const Error& error) {
      EXPECT_HAS(error.what(), path_);
      return true;
    }
  }

  ScratchFolder folder_;
  std::string path_ = folder_.file("tokens.h5");
  std::vector<std::int32_t> tokens_ = random_tokens(70'000, 257);
  std::string bytes_;
  TokenFileInfo info_;
};

TEST_F(DamagedTokenFile, TruncationIsFound) {
  for (const double part : {0.0, 0.0001, 0.001, 0.01, 0.1, 0.25, 0.5, 0.9, 0.99}) {
    const auto size = static_cast<std::size_t>(part * static_cast<double>(bytes_.size()));
    EXPECT_TRUE(detected(bytes_.substr(0, size))) << size << " of " << bytes_.size();
  }
  for (const std::size_t missing : {1, 2, 100, 4096}) {
    EXPECT_TRUE(detected(bytes_.substr(0, bytes_.size() - missing))) << missing;
  }
  write_bytes(path_, bytes_.substr(0, bytes_.size() / 2));
  EXPECT_HAS(open_error(path_), "' is truncated or damaged: ");
}

TEST_F(DamagedTokenFile, FlippedBytesAreFoundOrHarmless) {
  std::mt19937 generator(2);
  int found = 0;
  for (int flip = 0; flip < 200; ++flip) {
    std::string damaged = bytes_;
    // Half of the flips are in the metadata at the file's beginning.
    const std::size_t range = flip % 2 == 0 ? damaged.size() : 4096;
    const std::size_t at = generator() % range;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 + generator() % 255));
    found += detected(damaged) ? 1 : 0;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "byte " << at;
  }
  EXPECT_GE(found, 100);
}

}  // namespace
}  // namespace ostrakon::data
