// SPDX-License-Identifier: Apache-2.0

// ostrakon-data import, with what users take for dumps of token ids.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"

namespace ostrakon::testing {
namespace {

using Texts = std::vector<std::string>;
using Ids = std::vector<std::int64_t>;

/// Little-endian, of that many bytes each.
std::string raw(const Ids& ids, int bytes) {
  std::string all;
  for (const std::int64_t id : ids)
    for (int byte = 0; byte < bytes; ++byte) all += static_cast<char>(id >> (8 * byte) & 255);
  return all;
}

std::string big_endian16(const Ids& ids) {
  std::string all;
  for (const std::int64_t id : ids) {
    all += static_cast<char>(id >> 8);
    all += static_cast<char>(id & 255);
  }
  return all;
}

/// A NumPy array, version 1 of the format.
std::string npy(const std::string& descr, const std::string& shape, const std::string& numbers) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header += std::string(118 - 1 - header.size(), ' ') + "\n";
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + numbers;
}

std::string repeated(const std::string& part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += part;
  return all;
}

std::string utf16(const std::string& words) {
  std::string all = "\xff\xfe";
  for (const char letter : words) all += std::string({letter, '\0'});
  return all;
}

const std::string filling(200, '\0');  // as there is in files of these formats

struct Dump {
  std::string name;
  std::string bytes;
  Texts options;             ///< besides --vocabulary 50257 --end-of-text 50256
  std::string message = "";  ///< of an error or a warning; empty: none
  bool is_refused = true;    ///< where there is a message
};

class DumpsTest : public ::testing::Test {
 protected:
  Outcome run(const Texts& arguments) const {
    Command command;
    command.arguments = {OSTRAKON_APPS_DIR "/ostrakon-data"};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    command.folder = folder_.file("");
    return run_command(command);
  }

  void expect(const Dump& dump) const {
    const std::string output = dump.name + ".h5";
    write_bytes(folder_.file(dump.name), dump.bytes);
    Texts arguments = {"import", "--output", output, dump.name};
    arguments.insert(arguments.end(), dump.options.begin(), dump.options.end());
    const auto has = [&](const char* option) {
      return std::find(arguments.begin(), arguments.end(), option) != arguments.end();
    };
    if (!has("--vocabulary")) arguments.insert(arguments.end(), {"--vocabulary", "50257"});
    if (!has("--end-of-text")) arguments.insert(arguments.end(), {"--end-of-text", "50256"});
    const Outcome outcome = run(arguments);
    const bool is_refused = !dump.message.empty() && dump.is_refused;
    EXPECT_EQ(outcome.status, is_refused ? 1 : 0) << dump.name << "\n" << outcome.err;
    EXPECT_EQ(std::filesystem::exists(folder_.file(output)), !is_refused) << dump.name;
    EXPECT_FALSE(std::filesystem::exists(folder_.file(output + ".partial"))) << dump.name;
    if (dump.message.empty()) {
      EXPECT_EQ(outcome.err, "") << dump.name;
      return;
    }
    const std::string begin = is_refused ? "ostrakon-data: error: " : "ostrakon-data: warning: ";
    EXPECT_EQ(outcome.err.rfind(begin, 0), 0U) << dump.name << "\n" << outcome.err;
    EXPECT_HAS(outcome.err, dump.message) << dump.name << ": " << dump.message << "\nis not in\n"
                                          << outcome.err;
  }

  void expect_ids(const std::string& name, const std::string& shown) const {
    EXPECT_EQ(run({"show", name + ".h5", "--count", "4", "--begin", "0"}).out, shown) << name;
  }

  ScratchFolder folder_;
};

const Ids ids = {11, 40000, 50256, 7, 300, 29999, 50256, 12, 13, 14, 15, 16, 50255, 17, 50256, 9};
const Ids large = {11, 90000, 128001, 7, 300, 70000, 128001, 12, 13, 14, 15, 99999, 128001, 16};
/// So many that they are of no other type by chance.
Ids many(const Ids& few) {
  Ids all;
  while (all.size() < 64) all.insert(all.end(), few.begin(), few.end());
  return all;
}

const Texts llama = {"--vocabulary", "128256", "--end-of-text", "128001"};

Texts with(Texts options, const Texts& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

TEST_F(DumpsTest, NumbersAreReadAsWhatTheyAre) {
  const std::vector<Dump> all = {
      {"uint16", raw(ids, 2), {}},
      {"uint32", raw(large, 4), llama},
      {"uint32-asked-for", raw(ids, 4), {"--dtype", "uint32"}},
      {"uint64-asked-for", raw(ids, 8), {"--dtype", "uint64"}},
      {"npy-uint16", npy("<u2", "(16,)", raw(ids, 2)), {}},
      {"npy-int32", npy("<i4", "(16,)", raw(ids, 4)), {}},
      {"npy-int64", npy("<i8", "(16,)", raw(ids, 8)), {}},
      {"npy-of-the-type", npy("<i4", "(16,)", raw(ids, 4)), {"--dtype", "uint32"}},
      {"megatron-int32", raw(ids, 4), {"--dtype", "uint32"}},
      // Ids whose bytes are those that gzip's, UTF-16's and llm.c's files begin with.
      {"like-gzip", raw({35615, 8, 50256, 1, 1000, 3, 4, 5, 6, 7}, 2), {}},
      {"like-pickle", raw({640, 125, 50256, 1, 2, 3, 4, 5, 6, 7}, 2), {}},
      {"like-utf16", raw({65279, 55300, 3, 4, 50256, 9, 10, 11}, 2), {"--vocabulary", "65536"}}};
  for (const Dump& dump : all) expect(dump);
  for (const char* name :
       {"uint16", "uint32-asked-for", "uint64-asked-for", "npy-uint16", "npy-int32", "npy-int64"})
    expect_ids(name, "11 40000 50256\n7\n");
  expect_ids("uint32", "11 90000 128001\n7\n");
}

TEST_F(DumpsTest, WhatIsDoubtfulIsSaid) {
  const bool warned = false;
  const std::string halves = "every second number is 0, as where uint32";
  const std::vector<Dump> all = {
      {"int32-as-uint16", raw(many(ids), 4), {"--dtype", "uint16"}, halves, warned},
      {"int64-as-uint32", raw(many(ids), 8), {"--dtype", "uint32"}, "as where uint64", warned},
      {"few-halves", raw(ids, 4), {}, halves, warned},
      {"few-uint16", raw({7, 0, 9, 0, 50256, 0, 12, 0, 13, 0}, 2), {}, halves, warned},
      {"uint8-text",
       repeated("some words\n", 20),
       {"--dtype", "uint8", "--vocabulary", "256", "--end-of-text", "10"},
       "'uint8-text': is text, each byte of which is an id here",
       warned},
      {"uint8-text-of-more",
       repeated("{\"text\": \"some words\"}\n", 20),
       {"--dtype", "uint8", "--end-of-text", "10"},
       "is text, each byte of which is an id here",
       warned},
      {"small-type",
       raw({1, 2, 3, 50256, 4, 5, 6, 7}, 2),
       {"--vocabulary", "128256", "--dtype", "uint16"},
       "a uint16 holds no id from 65536 on, of a vocabulary of 128256",
       warned},
      {"no-end",
       raw({1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000}, 2),
       {},
       "--end-of-text 50256 is not among its ids: all of it is one document",
       warned},
      {"big-endian",
       big_endian16({512, 768, 50256, 1024, 1280, 50256, 1536, 1792}),
       {"--vocabulary", "65536"},
       "50256 with its bytes in reverse order is, 2 times, as in a big-endian dump",
       warned},
      {"padding",
       raw({1000, 2000, 50256, 0, 0, 0, 0, 0, 0, 0}, 2),
       {},
       "7 of 10 ids are 0: padding, or numbers of another type?",
       warned},
      {"bytes",
       raw({72, 105, 33, 32, 72, 111, 119, 32, 97, 114, 101}, 2),
       {"--end-of-text", "33"},
       "no id is above 119, of a vocabulary of 50257: bytes or text",
       warned}};
  for (const Dump& dump : all) expect(dump);
}

TEST_F(DumpsTest, WhatIsSomethingElseIsRefused) {
  const std::string header = raw({20240520, 1, 16}, 4) + std::string(1012, '\0');
  const std::string hint32 = "expected --dtype uint32, or --dtype uint16 if its ids are right";
  const std::vector<Dump> all = {
      {"int32", raw(many(ids), 4), {}, hint32},
      {"int64", raw(many(ids), 8), {}, "three of every four numbers are 0, as where uint64"},
      {"int64-for-uint32", raw(many(large), 8), llama,
       "expected --dtype uint64, or --dtype uint32"},
      {"wrapped", raw(large, 2), with(llama, {"--dtype", "uint16"}),
       "--end-of-text is 128001, which no uint16 holds"},
      {"odd", raw(ids, 2) + "x", {}, "'odd' ends inside a number of 2 bytes: it has 33 bytes"},
      {"uint16-as-uint32",
       raw(ids, 2),
       {"--dtype", "uint32"},
       "at position 0 is not in the vocabulary of 50257; expected ids from 0 to 50256, as uint32"},
      {"negative", raw({1, 2, -100, 50256, 4, 5, 6, 7}, 4), {"--dtype", "uint32"}, "token 429496"},
      {"nothing", "", {}, "'nothing' is empty: no tokens to write"},
      {"npy-negative", npy("<i8", "(4,)", raw({1, 2, -100, 3}, 8)), {}, "token -100 at position 2"},
      {"npy-float", npy("<f4", "(16,)", raw(ids, 4)), {}, "a NumPy array of <f4; expected little-"},
      {"npy-big",
       npy(">u2", "(16,)", big_endian16(ids)),
       {},
       "a NumPy array of >u2; expected litt"},
      {"npy-2d", npy("<u2", "(4, 4)", raw(ids, 2)), {}, "of shape (4, 4); expected one dimension"},
      {"npy-object", npy("|O", "(16,)", raw(ids, 2)), {}, "a NumPy array of |O; expected little-"},
      {"npy-cut", npy("<u2", "(17,)", raw(ids, 2)), {}, "of shape (17,) and type <u2, but has 32"},
      {"npy-head", npy("<u2", "(16,)", "").substr(0, 40), {}, "whose header is cut off"},
      {"npy-none", npy("<u2", "(0,)", ""), {}, "'npy-none' has no ids in it"},
      {"npy-type",
       npy("<u2", "(16,)", raw(ids, 2)),
       {"--dtype", "uint32"},
       "a NumPy array of uint16 (<u2); --dtype says uint32; leave it out"},
      {"npy-end", npy("<u2", "(16,)", raw(ids, 2)), llama,
       "--end-of-text is 128001, which no uint16 holds"},
      {"llm.c", header + raw(ids, 2), {}, "llm.c's header of 1024 bytes"},
      {"llm.c-llama3", raw({20240801, 7, 14}, 4) + std::string(1012, '\0') + raw(large, 4), llama,
       "`tail -c +1025 FILE` writes its ids alone, as uint32"},
      {"megatron.idx", std::string("MMIDIDX\0\0", 9) + filling, {}, "the ids are in the .bin file"},
      {"old.idx", std::string("TNTIDX\0\0", 8) + filling, {}, "the index of a Megatron-LM or fair"},
      {"zip", "PK\x03\x04" + filling, {}, "a zip archive, as NumPy's .npz and PyTorch's .pt are"},
      {"pickle", std::string("\x80\x04\x95\x10\0\0\0", 7) + filling + ".", {}, "a Python pickle"},
      {"torch-old", "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9" + filling, {}, "a Python pickle"},
      {"gzip", "\x1f\x8b\x08" + std::string(7, '\0') + "abcdefgh", {}, "compressed by gzip; expec"},
      {"zstd", "\x28\xb5\x2f\xfd" + filling, {}, "compressed by zstd"},
      {"xz", std::string("\xfd") + "7zXZ" + filling, {}, "compressed by xz"},
      {"bzip2", "BZh91AY&SY" + filling, {}, "compressed by bzip2"},
      {"lz4", "\x04\x22\x4d\x18" + filling, {}, "compressed by lz4"},
      {"tar", "ids.bin" + std::string(250, '\0') + "ustar" + filling, {}, "a tar archive"},
      {"parquet", "PAR1\x15" + filling + "PAR1", {}, "a Parquet file"},
      {"arrow", std::string("ARROW1\0\0", 8) + filling, {}, "an Arrow file"},
      {"arrow-stream",
       std::string("\xff\xff\xff\xff\x80\0\0\0\x10\0\0\0", 12) + filling,
       {},
       "an Arrow stream"},
      {"hdf5", "\x89HDF\r\n\x1a\n" + filling, {}, "an HDF5 file"},
      {"gguf", std::string("GGUF\x03\0\0\0", 8) + filling, {}, "a model in GGUF"},
      {"safetensors", raw({16}, 8) + "{\"a\": 1}        " + filling, {}, "a model in safetensors"},
      {"json-lines",
       repeated("{\"text\": \"some words\"}\n", 20),
       {},
       "'json-lines' is JSON; expe"},
      {"json-lines-of-text",
       repeated("{\"text\": \"some words\"}\n", 20),
       {},
       "(`ostrakon-data build` makes token files of text"},
      {"text", repeated("some words\n", 20), {}, "'text' is text; expected token ids alone"},
      {"text-of-bytes", repeated("some words\n", 20), {}, "with --dtype uint8 each byte is an id"},
      {"text-as-uint16",
       repeated("some words\n", 20),
       {"--dtype", "uint16"},
       "is text; expected token ids alone"},
      {"numbers", "11, 40000, 50256,\n7, 300", {}, "'numbers' is numbers written as text"},
      {"json-numbers", "[11, 40000, 50256, 7, 300]", {}, "is numbers written as text"},
      {"utf16",
       utf16("some words in two bytes each"),
       {},
       "'utf16' is text in UTF-16; expected to"}};
  for (const Dump& dump : all) expect(dump);
}

}  // namespace
}  // namespace ostrakon::testing
