// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/text/sources/source_stream.hpp>
#include <random>

#include "../support/scratch_folder.hpp"
#include "compressed.hpp"

namespace ostrakon::texts {
namespace {

using testing::error_of;
using testing::gzipped;
using testing::ScratchFolder;
using testing::write_bytes;
using testing::zstd_compressed;

std::string all_of(const std::string& path, std::int64_t at_once = 1000) {
  SourceStream stream(path);
  std::string all, block(static_cast<std::size_t>(at_once), '\0');
  for (std::int64_t got = at_once; got == at_once;) {
    got = stream.read(block.data(), at_once);
    all.append(block, 0, static_cast<std::size_t>(got));
  }
  EXPECT_EQ(stream.read(block.data(), at_once), 0);
  return all;
}

/// Lines of letters, which compress to about half.
std::string letters(std::size_t count) {
  std::mt19937 generator(1);
  std::string bytes(count, '\n');
  for (char& byte : bytes)
    if (generator() % 40 != 0) byte = static_cast<char>('a' + generator() % 16);
  return bytes;
}

TEST(SourceStream, WhatWasCompressedIsReadBack) {
  const ScratchFolder folder;
  const std::string path = folder.file("bytes");
  const std::string one = letters(700'000), other = letters(3000);
  const struct {
    const char* name;
    std::string bytes, expected;
  } cases[] = {
      {"plain", one, one},
      {"empty", "", ""},
      {"gzip", gzipped(one), one},
      {"zstd", zstd_compressed(one), one},
      {"gzip of nothing", gzipped(""), ""},
      {"zstd of nothing", zstd_compressed(""), ""},
      {"members of gzip", gzipped(other) + gzipped("") + gzipped(one), other + one},
      {"frames of zstd", zstd_compressed(other) + zstd_compressed("") + zstd_compressed(one),
       other + one},
      {"gzip before zeros", gzipped(one) + std::string(300'000, '\0'), one},
      {"a mark alone", "\x1f\x8b", "\x1f\x8b"},
  };
  for (const auto& entry : cases) {
    write_bytes(path, entry.bytes);
    EXPECT_EQ(all_of(path), entry.expected) << entry.name;
    EXPECT_EQ(all_of(path, 1), entry.expected.substr(0)) << entry.name;
  }
}

TEST(SourceStream, DamageIsSaid) {
  const ScratchFolder folder;
  const std::string path = folder.file("bytes");
  const std::string bytes = letters(100'000), gzip = gzipped(bytes), zstd = zstd_compressed(bytes);
  const auto flipped = [](std::string damaged, std::size_t at) {
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    return damaged;
  };
  const struct {
    const char* name;
    std::string bytes;
    const char* message;
  } cases[] = {
      {"truncated gzip", gzip.substr(0, gzip.size() / 2), "its gzip data is truncated"},
      {"gzip without its last byte", gzip.substr(0, gzip.size() - 1), "its gzip data is truncated"},
      {"gzip with another checksum", flipped(gzip, gzip.size() - 6), "incorrect data check"},
      {"gzip with another length", flipped(gzip, gzip.size() - 2), "incorrect length check"},
      {"gzip before text", gzip + "text", "other bytes follow its gzip data"},
      {"gzip before zeros and text", gzip + std::string(9, '\0') + "t",
       "other bytes follow its gzip data"},
      {"gzip with another method", flipped(gzip, 3).substr(0, 4) + gzip.substr(4), "gzip data"},
      {"truncated zstd", zstd.substr(0, zstd.size() / 2), "its zstd data is truncated"},
      {"zstd without its last byte", zstd.substr(0, zstd.size() - 1), "its zstd data is truncated"},
      {"zstd with another checksum", flipped(zstd, zstd.size() - 2), "its zstd data is damaged"},
      {"zstd before text", zstd + "text", "its zstd data is damaged"},
  };
  for (const auto& entry : cases) {
    write_bytes(path, entry.bytes);
    EXPECT_HAS(error_of([&] { all_of(path); }), entry.message) << entry.name;
  }
  write_bytes(path, gzip.substr(0, 30));
  const PlainFile file(path, PlainFile::Mode::read);
  EXPECT_HAS(error_of([&] { unpacked_head(file, gzip.substr(0, 30)); }),
             "bytes': its gzip data is truncated");
}

}  // namespace
}  // namespace ostrakon::texts
