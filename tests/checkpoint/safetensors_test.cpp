// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/math/half.hpp>
#include <random>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using ostrakon::testing::error_of;
using ostrakon::testing::read_bytes;
using ostrakon::testing::ScratchFolder;
using ostrakon::testing::write_bytes;

using Floats = std::vector<float>;

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 255);
  return bytes;
}

/// Returns a file with this header and `data_bytes` zeros.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  return little_endian(header.size()) + header + std::string(data_bytes, '\0');
}

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Floats read_all(SafetensorsReader& reader, const std::string& name) {
  Floats values(static_cast<std::size_t>(reader.tensor(name).elements()));
  reader.read(name, 0, static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

TEST(Safetensors, ReadsBytesMadeByHand) {
  const ScratchFolder folder;
  const std::string path = folder.file("model.safetensors");
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[12,36]},)"
      R"("a":{"data_offsets":[0,4],"dtype":"BF16","shape":[2]},)"
      R"("none":{"dtype":"F32","shape":[0,9223372036854775807,4],"data_offsets":[12,12]},)"
      R"("c":{"dtype":"I64","shape":[],"data_offsets":[4,12]}})"
      "  ";
  const Floats b = {1.0f, -2.5f, 3e-40f, -0.0f, 1e38f, 7.0f};
  write_bytes(path, little_endian(header.size()) + header +
                        bytes_of_values(std::vector<std::uint16_t>{0x3F80, 0xC020}) +
                        bytes_of_values(std::vector<std::int64_t>{5}) + bytes_of_values(b));
  for (const std::string& opened : {path, folder.file("")}) {
    SafetensorsReader reader(opened);
    EXPECT_EQ(reader.tensors().size(), 4u);
    EXPECT_EQ(reader.metadata().at("format"), "pt");
    EXPECT_EQ(reader.tensor("b").shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(reader.tensor("none").elements(), 0);
    EXPECT_EQ(reader.tensor("c").elements(), 1);
    EXPECT_EQ(read_all(reader, "a"), (Floats{1.0f, -2.5f}));
    EXPECT_EQ(read_all(reader, "b"), b);
    EXPECT_TRUE(std::signbit(read_all(reader, "b")[3]));
    for (std::int64_t first = 0; first <= 6; ++first)
      for (std::int64_t count = 0; first + count <= 6; ++count) {
        Floats part(static_cast<std::size_t>(count) + 1, 99.0f);
        reader.read("b", first, count, part.data());
        EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, b.begin() + first));
        EXPECT_EQ(part.back(), 99.0f);
      }
    Floats values(10);
    EXPECT_HAS(error_of([&] { reader.read("c", 0, 1, values.data()); }),
               "tensor \"c\" is I64; expected F32, BF16 or F16");
    EXPECT_HAS(error_of([&] { reader.read("b", 4, 3, values.data()); }),
               "elements 4 to 7 of tensor \"b\" asked for; it has 6");
    EXPECT_HAS(error_of([&] { reader.read("b", -1, 3, values.data()); }), "it has 6");
    EXPECT_HAS(error_of([&] { reader.read("d", 0, 1, values.data()); }), "has no tensor \"d\"");
  }
}

TEST(Safetensors, SixteenBitNumbersAreExact) {
  const ScratchFolder folder;
  const std::string path = folder.file("all.safetensors");
  const std::string header =
      R"({"bf16":{"dtype":"BF16","shape":[65536],"data_offsets":[0,131072]},)"
      R"("fp16":{"dtype":"F16","shape":[65536],"data_offsets":[131072,262144]}})";
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  write_bytes(path,
              little_endian(header.size()) + header + bytes_of_values(all) + bytes_of_values(all));
  SafetensorsReader reader(path);
  const Floats bf16_values = read_all(reader, "bf16"), fp16_values = read_all(reader, "fp16");
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const std::uint32_t upper = i << 16;
    float expected = 0.0f;
    std::memcpy(&expected, &upper, sizeof expected);
    EXPECT_EQ(std::isnan(bf16_values[i]), std::isnan(expected));
    if (!std::isnan(expected)) {
      EXPECT_EQ(bf16_values[i], expected) << i;
    }

    const int exponent = static_cast<int>(i >> 10 & 31), mantissa = static_cast<int>(i & 1023);
    double value =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) value = std::numeric_limits<double>::infinity();
    if ((i & 0x8000) != 0) value = -value;
    if (exponent == 31 && mantissa != 0)
      EXPECT_TRUE(std::isnan(fp16_values[i])) << i;
    else
      EXPECT_EQ(fp16_values[i], value) << i;
  }
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const ScratchFolder folder;
  const std::string path = folder.file("written.safetensors");
  std::mt19937 generator(1);
  Floats values(200'000);
  for (float& value : values) value = static_cast<float>(generator()) * 1e-9f - 2.0f;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    SafetensorsWriter writer(path, dtype,
                             {{"z", {1000, 200}}, {"empty", {0}}, {"\"odd\"\n", {}}, {"a", {3}}},
                             {{"made by", "us"}});
    writer.write("z", values.data(), 70'001);
    writer.write("z", values.data() + 70'001, 129'999);
    writer.write("\"odd\"\n", values.data(), 1);
    EXPECT_FALSE(std::filesystem::exists(path)) << "before it is finished";
    writer.write("a", values.data() + 5, 3);
    writer.finish();
    EXPECT_FALSE(std::filesystem::exists(path + ".partial"));

    SafetensorsReader reader(path);
    Floats expected = values;
    if (dtype == DType::bf16)
      for (float& value : expected) value = bf16(value);
    EXPECT_EQ(read_all(reader, "z"), expected);
    EXPECT_EQ(read_all(reader, "\"odd\"\n"), Floats{expected[0]});
    EXPECT_EQ(read_all(reader, "a"), Floats(expected.begin() + 5, expected.begin() + 8));
    EXPECT_EQ(reader.tensor("z").begin % 8, 0);
    EXPECT_EQ(reader.metadata().at("made by"), "us");
    std::filesystem::remove(path);
  }
}

TEST(Safetensors, TheWriterRefusesWhatDoesNotFit) {
  const ScratchFolder folder;
  const std::string path = folder.file("w.safetensors");
  const Floats values(10);
  {
    SafetensorsWriter writer(path, DType::fp32, {{"a", {2, 2}}, {"b", {1}}}, {});
    EXPECT_HAS(error_of([&] { writer.write("b", values.data(), 1); }),
               "expected at most 4 of \"a\"");
    writer.write("a", values.data(), 3);
    EXPECT_HAS(error_of([&] { writer.write("a", values.data(), 2); }),
               "can't write 2 elements of tensor \"a\"");
    EXPECT_HAS(error_of([&] { writer.finish(); }), "\"a\" is not written whole");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  const auto error = [&](const std::string& name, std::vector<SafetensorsWriter::Tensor> tensors) {
    return error_of([&] { SafetensorsWriter(name, DType::fp32, tensors, {}); });
  };
  EXPECT_HAS(error(path, {{"a", {1}}, {"a", {1}}}), "the name \"a\" is taken");
  EXPECT_HAS(error(path, {{"__metadata__", {1}}}), "is taken");
  EXPECT_HAS(error(path, {{"a", {-1}}}), "expected no extent below 0");
  EXPECT_HAS(error(path, {{"a", {1LL << 40, 1LL << 40}}}), "is too large");
  EXPECT_HAS(error(folder.file(""), {}), "a folder has that name");
  EXPECT_HAS(error(folder.file("none/w.safetensors"), {}), "No such file");
  EXPECT_HAS(error_of([&] { SafetensorsWriter(path, DType::fp16, {}, {}); }), "fp32 and bf16");
}

#ifdef __linux__
TEST(Safetensors, AFullDiskIsSaid) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  const ScratchFolder folder;
  const std::string path = folder.file("w.safetensors");
  std::filesystem::create_symlink("/dev/full", path + ".partial");
  EXPECT_HAS(error_of([&] {
               SafetensorsWriter writer(path, DType::fp32, {{"a", {1}}}, {});
               const float value = 1.0f;
               writer.write("a", &value, 1);
               writer.finish();
             }),
             "No space left");
  EXPECT_FALSE(std::filesystem::exists(path));
}
#endif

struct Malformed {
  std::string bytes;
  std::string message;
};

/// Returns a file whose header has one tensor "t", with four bytes of data.
Malformed one(const std::string& tensor, const std::string& message) {
  return {file_of("{\"t\":" + tensor + "}", 4), message};
}

std::vector<Malformed> malformed_files() {
  const std::string good = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string next = R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  std::vector<Malformed> files = {
      // the length
      {"", "has 0 bytes; expected at least the 8"},
      {"1234567", "has 7 bytes; expected at least the 8"},
      {little_endian(100'000'001), "its header's length is 100000001 bytes; expected at most 1000"},
      {little_endian(~0ull), "length is 18446744073709551615 bytes; expected at most 100000000"},
      {little_endian(1ull << 63) + "{}", "length is 9223372036854775808 bytes"},
      {little_endian(3) + "{}", "length is 3 bytes; expected at most the 2 that follow"},
      {little_endian(0), "does not begin with '{'"},
      // JSON
      {file_of("[]", 0), "does not begin with '{'"},
      {file_of("7", 0), "does not begin with '{'"},
      {file_of(" {}", 0), "does not begin with '{'"},
      {file_of("{", 0), "its header is not JSON: parse error"},
      {file_of("{}}", 0), "its header is not JSON"},
      {file_of("{\"t\":" + good + ",}", 4), "its header is not JSON"},
      {file_of(std::string("{\"t\0\":1}", 8), 0), "its header is not JSON"},
      {file_of("{\"\xff\":1}", 0), "its header is not JSON"},
      {file_of("{\"t\":" + good + "} x", 4), "its header is not JSON"},
      {file_of("{\"t\":" + good + ",\"t\":" + next + "}", 8), "tensor \"t\" is there twice"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "\"__metadata__\" is there twice"},
      {file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "the key \"a\" is there twice"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "\"a\" is 1; expected text"},
      {file_of(R"({"__metadata__":{"a":{}}})", 0), "\"a\" is an object; expected text"},
      {file_of(R"({"__metadata__":[]})", 0), "is an array; expected an object"},
      // fields
      one("7", "tensor \"t\" is 7; expected an object"),
      one("null", "tensor \"t\" is null; expected an object"),
      one("[]", "tensor \"t\" is an array; expected an object"),
      one("{}", "tensor \"t\" has no dtype"),
      one(R"({"shape":[1],"data_offsets":[0,4]})", "has no dtype"),
      one(R"({"dtype":"F32","data_offsets":[0,4]})", "has no shape"),
      one(R"({"dtype":"F32","shape":[1]})", "has no data_offsets"),
      one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})", "unknown key \"x\""),
      one(R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})",
          "the key \"shape\" is there twice"),
      one(R"({"dtype":5,"shape":[1],"data_offsets":[0,4]})", "dtype is 5; expected text"),
      one(R"({"dtype":["F32"],"shape":[1],"data_offsets":[0,4]})", "dtype is an array"),
      one(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})", "unknown dtype \"F33\""),
      one(R"({"dtype":"f32","shape":[1],"data_offsets":[0,4]})", "unknown dtype \"f32\""),
      // shapes
      one(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})", "shape is 1; expected an array"),
      one(R"({"dtype":"F32","shape":{},"data_offsets":[0,4]})", "shape is an object"),
      one(R"({"dtype":"F32","shape":"1","data_offsets":[0,4]})", "shape is \"1\""),
      one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
          "shape holds -1; expected whole numbers"),
      one(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})", "shape holds 1.5"),
      one(R"({"dtype":"F32","shape":["1"],"data_offsets":[0,4]})", "shape holds \"1\""),
      one(R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})", "shape holds an array"),
      one(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})",
          "shape holds 9223372036854775808"),
      one(R"({"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]})",
          "shape holds 99999999999999999999"),
      one(R"({"dtype":"F32","shape":[1e999],"data_offsets":[0,4]})", "its header is not JSON"),
      one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})",
          "the shape (4294967296, 4294967296) of F32 is too large"),
      one(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]})", "is too large"),
      one(R"({"dtype":"F4","shape":[3],"data_offsets":[0,4]})", "ends inside a byte"),
      one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})",
          "hold 4 bytes; expected 8 for the shape (2) of F32"),
      one(R"({"dtype":"BF16","shape":[1],"data_offsets":[0,4]})", "hold 4 bytes; expected 2"),
      one(R"({"dtype":"F32","shape":[0],"data_offsets":[0,4]})", "hold 4 bytes; expected 0"),
      // offsets
      one(R"({"dtype":"F32","shape":[1],"data_offsets":4})", "data_offsets is 4; expected an arr"),
      one(R"({"dtype":"F32","shape":[1],"data_offsets":[]})", "data_offsets has 0 numbers"),
      one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", "data_offsets has 1 numbers"),
      one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", "more than 2 numbers"),
      one(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})", "data_offsets holds -4"),
      one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})",
          "data_offsets are [4, 0]; expected the end after the begin"),
      one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})",
          "data_offsets are [4, 8]; expected at most 4"),
      one(R"({"dtype":"F32","shape":[1],"data_offsets":[9223372036854775803,9223372036854775807]})",
          "expected at most 4"),
      one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,null]})", "data_offsets holds null"),
      // tensors next to each other
      {file_of("{\"a\":" + good + ",\"b\":" + good + "}", 4),
       "tensor \"b\" begins at byte 0, inside tensor \"a\"; expected 4"},
      {file_of("{\"a\":" + good + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6),
       "tensor \"b\" begins at byte 2, inside tensor \"a\"; expected 4"},
      {file_of("{\"b\":" + next + "}", 8),
       "tensor \"b\" begins at byte 4, which leaves a hole after the start of the data"},
      {file_of("{\"a\":" + good + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[5,9]}})", 9),
       "leaves a hole after tensor \"a\"; expected 4"},
      {file_of("{\"t\":" + good + "}", 5), "has 5 bytes of data; expected 4"},
      {file_of("{}", 1), "has 1 bytes of data; expected 0"},
      {file_of("{\"t\":" + good + "}", 3), "expected at most 3"},
  };
  std::string deep = "{\"t\":";
  for (int i = 0; i < 200'000; ++i) deep += "[";
  files.push_back({file_of(deep, 0), "is an array; expected an object"});
  std::string many = R"({"t":{"dtype":"F32","shape":[)";
  for (int i = 0; i < 40; ++i) many += "1,";
  files.push_back({file_of(many, 0), "shape has more than 32 numbers; expected at most 32"});
  files.push_back({file_of("{\"" + std::string(10'000, 'x') + "\\n\":7}", 0), "...\" is 7"});
  return files;
}

TEST(Safetensors, MalformedFilesAreRefused) {
  const ScratchFolder folder;
  const std::string path = folder.file("bad.safetensors");
  EXPECT_GE(malformed_files().size(), 60u);
  for (const Malformed& file : malformed_files()) {
    write_bytes(path, file.bytes);
    const std::string error = error_of([&] { SafetensorsReader reader(path); });
    EXPECT_HAS(error, file.message);
    EXPECT_HAS(error, "safetensors file '" + path + "'");
    EXPECT_LT(error.size(), 600 + path.size());
    EXPECT_LACKS(error, "\n");
  }
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& name) {
    return error_of([&] { SafetensorsReader reader(folder.file(name)); });
  };
  EXPECT_HAS(error("none.safetensors"), "does not exist");
  EXPECT_HAS(error(""), "has neither model.safetensors.index.json nor");
  std::filesystem::create_directory(folder.file("model.safetensors"));
  EXPECT_HAS(error(""), "is a folder; expected a safetensors file");
  EXPECT_HAS(error_of([] { SafetensorsReader reader("/dev/zero"); }), "is not a plain file");
}

/// Damaged files are refused, or read without harm.
TEST(Safetensors, FlippedAndMissingBytesDoNoHarm) {
  const ScratchFolder folder;
  const std::string path = folder.file("w.safetensors");
  const Floats values(20, 1.0f);
  SafetensorsWriter writer(path, DType::fp32, {{"first", {2, 5}}, {"second", {10}}}, {});
  writer.write("first", values.data(), 10);
  writer.write("second", values.data(), 10);
  writer.finish();
  const std::string bytes = read_bytes(path);
  const auto read = [&](const std::string& damaged) {
    write_bytes(path, damaged);
    try {
      SafetensorsReader reader(path);
      for (const auto& [name, tensor] : reader.tensors())
        if (tensor.dtype == "F32") read_all(reader, name);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(read(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(read(bytes.substr(0, size)));
  std::mt19937 generator(1);
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = bytes;
    for (unsigned flips = 1 + generator() % 3; flips > 0; --flips)
      damaged[generator() % (bytes.size() - 80)] ^= static_cast<char>(1u << generator() % 8);
    read(damaged);
  }
}

// --- several files

class SafetensorsIndex : public ::testing::Test {
 protected:
  void SetUp() override {
    write("one.safetensors", "a", {1.0f, 2.0f});
    write("two.safetensors", "b", {3.0f, 4.0f, 5.0f});
  }
  void write(const std::string& name, const std::string& tensor, const Floats& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    SafetensorsWriter writer(folder_.file(name), DType::fp32, {{tensor, {count}}, {"extra", {0}}},
                             {{"of", name}});
    writer.write(tensor, values.data(), count);
    writer.finish();
  }
  std::string index() const { return folder_.file("model.safetensors.index.json"); }
  std::string error(const std::string& json) {
    write_bytes(index(), json);
    return error_of([&] { SafetensorsReader reader(index()); });
  }

  ScratchFolder folder_;
};

TEST_F(SafetensorsIndex, FindsEachTensorInItsFile) {
  write_bytes(index(), R"({"metadata": {"total_size": 20, "more": [{}]},
      "weight_map": {"b": "two.safetensors", "a": "one.safetensors"}})");
  for (const std::string& path : {index(), folder_.file("")}) {
    SafetensorsReader reader(path);
    EXPECT_EQ(reader.tensors().size(), 2u);
    EXPECT_EQ(read_all(reader, "a"), (Floats{1.0f, 2.0f}));
    EXPECT_EQ(read_all(reader, "b"), (Floats{3.0f, 4.0f, 5.0f}));
    EXPECT_EQ(reader.metadata().at("of"), "one.safetensors");
  }
}

TEST_F(SafetensorsIndex, MalformedOnesAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "is not JSON"},
      {"{", "is not JSON"},
      {"[]", "is array; expected an object"},
      {"{}", "has no weight_map"},
      {R"({"weight_map": []})", "its weight_map is array; expected an object"},
      {R"({"weight_map": {}})", "its weight_map is empty"},
      {R"({"weight_map": {"a": 1}})", "tensor \"a\" is in number; expected a file's name"},
      {R"({"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}})",
       "the key \"a\" is there twice"},
      {R"({"weight_map": {"a": "../one.safetensors"}})", "expected the plain name of a file"},
      {R"({"weight_map": {"a": "/one.safetensors"}})", "expected the plain name of a file"},
      {R"({"weight_map": {"a": "x\\one.safetensors"}})", "expected the plain name of a file"},
      {R"({"weight_map": {"a": "one.safetensors\u0000"}})", "expected the plain name of a file"},
      {R"({"weight_map": {"a": ".."}})", "expected the plain name of a file"},
      {R"({"weight_map": {"a": ""}})", "expected the plain name of a file"},
      {R"({"weight_map": {"a": "three.safetensors"}})", "three.safetensors' does not exist"},
      {R"({"weight_map": {"a": "two.safetensors"}})",
       "tensor \"a\" is not in 'two.safetensors', where it is said to be"},
      {R"({"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{}}}}}}}}}})", "is nested too deeply"}};
  for (const auto& [json, message] : cases) EXPECT_HAS(error(json), message);
  EXPECT_HAS(error(std::string(100'000, '[')), "is nested too deeply");
  write_bytes(folder_.file("bad.safetensors"), "x");
  EXPECT_HAS(error(R"({"weight_map": {"a": "bad.safetensors"}})"), "bad.safetensors' has 1 bytes");
}

}  // namespace
}  // namespace ostrakon::checkpoint
