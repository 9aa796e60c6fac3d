// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostrakon/checkpoint/huggingface/dequantizing_reader.hpp>
#include <ostrakon/checkpoint/huggingface/small_floats.hpp>
#include <ostrakon/math/half.hpp>
#include <random>

#include "../support/scratch_folder.hpp"
#include "checkpoint/stored_tensors.hpp"

namespace ostrakon::checkpoint {
namespace {

using ostrakon::testing::error_of;
using ostrakon::testing::ScratchFolder;
using ostrakon::testing::write_bytes;
using namespace test::stored;

Stored random_codes(const std::string& name, const std::string& dtype, const Shape& shape) {
  return {name, dtype, shape, random_bytes(elements_in(shape))};
}

/// Returns scales 1 / 3, 2 / 3, 1, ... in fp32: each is another, and products are rounded.
Stored counted_scales(const std::string& name, const Shape& shape) {
  Floats values;
  for (std::int64_t i = 0; i < elements_in(shape); ++i)
    values.push_back(static_cast<float>(i + 1) / 3.0f);
  return {name, "F32", shape,
          std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size())};
}

/// E5M2 by its definition, in double.
double e5m2(int code) {
  const int exponent = code / 4 % 32, mantissa = code % 4;
  double size = exponent == 0 ? mantissa / 4.0 * std::pow(2.0, -14)
                              : (1 + mantissa / 4.0) * std::pow(2.0, exponent - 15);
  if (exponent == 31) size = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  return code >= 128 ? -size : size;
}

/// Whether values are the same number with the same sign, or both NaN.
::testing::AssertionResult same(float found, double expected) {
  const bool is_same = std::isnan(expected) ? std::isnan(found)
                                            : static_cast<double>(found) == expected &&
                                                  std::signbit(found) == std::signbit(expected);
  return is_same ? ::testing::AssertionSuccess()
                 : ::testing::AssertionFailure() << found << "; expected " << expected;
}

/// Reads whole tensors and many ranges of them, and compares them with `expected`.
void expect_values(DequantizingReader& reader, const std::string& name, const Floats& expected) {
  const auto count = static_cast<std::int64_t>(expected.size());
  ASSERT_EQ(reader.tensor(name).elements(), count) << name;
  std::mt19937 generator(9);
  for (int trial = 0; trial < 40; ++trial) {
    const std::int64_t first = trial == 0 ? 0 : generator() % (count + 1);
    const std::int64_t most =
        trial % 2 == 0 ? count - first : std::min<std::int64_t>(count - first, 300);
    const std::int64_t length = trial == 0 ? count : generator() % (most + 1);
    Floats found(static_cast<std::size_t>(length) + 1, 99.0f);
    reader.read(name, first, length, found.data());
    for (std::int64_t i = 0; i < length; ++i)
      ASSERT_TRUE(same(found[i], expected[first + i])) << name << " " << first << " + " << i;
    ASSERT_EQ(found.back(), 99.0f);
  }
  float value = 0.0f;
  EXPECT_HAS(error_of([&] { reader.read(name, count - 1, 2, &value); }), "asked for; it has");
  EXPECT_HAS(error_of([&] { reader.read(name, -1, 1, &value); }), "asked for; it has");
}

TEST(SmallFloats, AllCodesAreTheirNumbers) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_TRUE(same(float_of_e4m3(byte), e4m3(code))) << code;
    EXPECT_TRUE(same(float_of_e5m2(byte), e5m2(code))) << code;
    EXPECT_TRUE(same(float_of_e2m1(byte), e2m1[code % 16])) << code;
    EXPECT_TRUE(same(float_of_e8m0(byte), code == 255 ? std::nan("") : std::pow(2.0, code - 127)))
        << code;
  }
  EXPECT_EQ(float_of_e4m3(0x7E), 448.0f);
  EXPECT_EQ(float_of_e4m3(0x01), 1.0f / 512);
}

/// Scales of a tensor (..., rows, columns), and how many rows and columns share one.
struct Case {
  const char* dtype;
  Shape shape;
  const char* scale_name;
  Shape scale_shape;
  std::int64_t rows, columns;
  const char* config;  ///< quantization_config; empty: no config.json
};

constexpr const char* blocks_of_3x5 =
    R"({"quant_method": "fp8", "weight_block_size": [3, 5], "activation_scheme": "dynamic"})";
constexpr const char* one_scale = R"({"quant_method": "fp8", "weight_block_size": null})";
constexpr std::int64_t all = std::int64_t{1} << 40;

TEST(DequantizingReader, ScalesEightBitFloats) {
  const std::vector<Case> cases = {
      {"F8_E4M3", {300, 517}, "w.weight_scale_inv", {3, 5}, 128, 128, ""},
      {"F8_E4M3", {128, 256}, "w.weight_scale_inv", {1, 2}, 128, 128, ""},
      {"F8_E5M2", {129, 127}, "w.weight_scale_inv", {2, 1}, 128, 128, ""},
      {"F8_E4M3", {1, 1}, "w.weight_scale_inv", {1, 1}, 128, 128, ""},
      {"F8_E4M3", {7, 11}, "w.weight_scale_inv", {3, 3}, 3, 5, blocks_of_3x5},
      {"F8_E4M3", {4, 7, 11}, "w.weight_scale_inv", {4, 3, 3}, 3, 5, blocks_of_3x5},
      {"F8_E4M3", {7, 11}, "w.weight_scale_inv", {}, all, all, one_scale},
      {"F8_E5M2", {7, 11}, "w.weight_scale_inv", {1}, all, all, one_scale},
      {"F8_E4M3", {4, 7, 11}, "w.weight_scale_inv", {4, 1, 1}, all, all, one_scale},
      {"F8_E4M3", {7, 11}, "w.weight_scale", {1}, all, all, ""},
      {"F8_E4M3", {7, 11}, "w.weight_scale", {}, all, all, ""},
      {"F8_E4M3", {300, 11}, "w.weight_scale", {300, 1}, 1, all, ""},
      {"F8_E4M3", {2, 300, 11}, "w.weight_scale", {2, 300, 1}, 1, all, ""},
      {"F8_E4M3", {11}, "w.weight_scale", {1}, all, all, ""},
  };
  for (const Case& which : cases) {
    const ScratchFolder folder;
    const Stored codes = random_codes("w.weight", which.dtype, which.shape);
    const Stored scales = counted_scales(which.scale_name, which.scale_shape);
    const std::string activations = "w.input_scale", others = "w.activation_scale";
    write_stored(folder.file("model.safetensors"),
                 {codes, scales, counted_scales(activations, {}), counted_scales(others, {1}),
                  counted_scales("w.bias", {3})});
    if (*which.config != 0)
      write_bytes(folder.file("config.json"),
                  text(R"({"quantization_config": )", which.config, "}"));
    const Shape& shape = which.shape;
    const std::int64_t columns = shape.back();
    const std::int64_t rows = shape.size() > 1 ? shape[shape.size() - 2] : 1;
    const std::int64_t wide = (columns + which.columns - 1) / which.columns;
    const std::int64_t high = (rows + which.rows - 1) / which.rows;
    const bool has_more = which.scale_shape.size() > 2;
    Floats expected;
    for (std::int64_t i = 0; i < elements_in(shape); ++i) {
      const std::int64_t matrix = i / (rows * columns), row = i / columns % rows;
      const std::int64_t scale = (has_more ? matrix * high * wide : 0) + row / which.rows * wide +
                                 i % columns / which.columns;
      const int code = byte_at(codes, i);
      const double value = which.dtype == std::string("F8_E4M3") ? e4m3(code) : e5m2(code);
      expected.push_back(static_cast<float>(value * static_cast<double>(float_at(scales, scale))));
    }
    DequantizingReader reader(folder.file(""));
    EXPECT_EQ(reader.tensors().size(), 2u);
    EXPECT_TRUE(reader.has("w.bias"));
    EXPECT_FALSE(reader.has(which.scale_name));
    EXPECT_EQ(reader.tensor("w.weight").shape, shape);
    expect_values(reader, "w.weight", expected);
    Floats bias(3);
    reader.read("w.bias", 0, 3, bias.data());
    EXPECT_EQ(bias[2], 1.0f);
  }
}

/// More elements than are read at once, in rows that are longer than that, too.
TEST(DequantizingReader, LargeMatricesAreReadInParts) {
  const ScratchFolder folder;
  const Stored wide = random_codes("w", "F8_E4M3", {3, 100'001});
  const Stored high = random_codes("h", "F8_E4M3", {100'001, 3});
  const Stored of_wide = counted_scales("w_scale_inv", {1, 782}),
               of_high = counted_scales("h_scale_inv", {782, 1});
  write_stored(folder.file("model.safetensors"), {wide, high, of_wide, of_high});
  DequantizingReader reader(folder.file("model.safetensors"));
  Floats of_w, of_h;
  for (std::int64_t i = 0; i < 300'003; ++i) {
    of_w.push_back(
        static_cast<float>(e4m3(byte_at(wide, i)) * float_at(of_wide, i % 100'001 / 128)));
    of_h.push_back(static_cast<float>(e4m3(byte_at(high, i)) * float_at(of_high, i / 3 / 128)));
  }
  expect_values(reader, "w", of_w);
  expect_values(reader, "h", of_h);
}

TEST(DequantizingReader, ScalesHaveFourDtypes) {
  const ScratchFolder folder;
  const std::uint16_t halves[] = {bf16(0.75f).bits, fp16(-1.5f).bits};
  const auto* const bytes = reinterpret_cast<const char*>(halves);
  std::vector<Stored> tensors = {{"b_scale", "BF16", {1}, std::string(bytes, 2)},
                                 {"f_scale", "F16", {1}, std::string(bytes + 2, 2)},
                                 {"e_scale", "F8_E8M0", {2, 1}, std::string("\x7d\xff", 2)}};
  for (const char* const name : {"b", "f", "e"})
    tensors.push_back({name, "F8_E4M3", {2, 1}, std::string("\x38\xB8", 2)});  // 1, -1
  write_stored(folder.file("s.safetensors"), tensors);
  DequantizingReader reader(folder.file("s.safetensors"));
  expect_values(reader, "b", {0.75f, -0.75f});
  expect_values(reader, "f", {-1.5f, 1.5f});
  expect_values(reader, "e", {0.25f, std::nanf("")});
}

/// The expected values are of plain loops over the stored order.
TEST(DequantizingReader, UnpacksAndTransposesFourBitFloats) {
  const std::int64_t experts = 3, rows = 5, groups = 4, columns = 32 * groups;
  const ScratchFolder folder;
  const Stored blocks = random_codes("gate_up_proj_blocks", "U8", {experts, rows, groups, 16});
  Stored scales = random_codes("gate_up_proj_scales", "U8", {experts, rows, groups});
  scales.bytes[3] = '\0';
  scales.bytes[17] = '\xff';
  write_stored(folder.file("model.safetensors"),
               {blocks, scales, counted_scales("gate_up_proj_bias", {2}),
                random_codes("down_blocks", "U8", {2, 1, 1, 16}),
                random_codes("down_scales", "U8", {2, 1, 1})});
  Floats expected(static_cast<std::size_t>(experts * rows * columns));
  for (std::int64_t e = 0; e < experts; ++e)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        const int scale = byte_at(scales, (e * rows + r) * groups + c / 32);
        const int byte = byte_at(blocks, (e * rows + r) * columns / 2 + c / 2);
        const double value = e2m1[c % 2 == 0 ? byte % 16 : byte / 16];
        expected[static_cast<std::size_t>((e * columns + c) * rows + r)] =
            static_cast<float>(scale == 255 ? std::nan("") : value * std::pow(2.0, scale - 127));
      }
  DequantizingReader reader(folder.file(""));
  EXPECT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.tensor("gate_up_proj").shape, (Shape{experts, columns, rows}));
  EXPECT_EQ(reader.tensor("gate_up_proj").dtype, "MXFP4");
  EXPECT_EQ(reader.tensor("down").shape, (Shape{2, 32, 1}));
  expect_values(reader, "gate_up_proj", expected);
  // The last expert's bytes are kept, but not for another tensor.
  Floats down(64);
  reader.read("gate_up_proj", 0, 1, down.data());
  reader.read("down", 0, 64, down.data());
  const float again = down[1];
  reader.read("gate_up_proj", 0, 1, down.data());
  EXPECT_TRUE(same(down[0], expected[0]));
  reader.read("down", 1, 1, down.data());
  EXPECT_TRUE(same(down[0], again));
}

TEST(DequantizingReader, RefusesScalesThatAreMissingOrOfAnotherShape) {
  struct Bad {
    std::vector<Stored> tensors;
    const char* message;
    const char* config = "";
  };
  const Stored fp8 = random_codes("x.weight", "F8_E4M3", {200, 130});
  const Stored blocks = random_codes("y_blocks", "U8", {2, 3, 2, 16});
  const Stored scales = random_codes("y_scales", "U8", {2, 3, 2});
  const std::string inverse = "x.weight_scale_inv", plain = "x.weight_scale";
  const std::vector<Bad> files = {
      {{fp8},
       "tensor \"x.weight\" is F8_E4M3: its scales are missing; expected a tensor "
       "\"x.weight_scale_inv\" or \"x.weight_scale\""},
      {{fp8, counted_scales(inverse, {1, 2})},
       "its scales, tensor \"x.weight_scale_inv\", are of the shape (1, 2); expected (2, 2), "
       "one for each block of 128 x 128"},
      {{fp8, counted_scales(inverse, {})}, "expected (2, 2), one for each block"},
      {{fp8, counted_scales(inverse, {200, 1})}, "expected (2, 2), one for each block"},
      {{fp8, counted_scales(inverse, {2, 2})},
       "expected (1, 1), one for each matrix, or ",
       one_scale},
      {{fp8, counted_scales(inverse, {2, 2})},
       "expected (67, 26), one for each block of 3 x 5",
       blocks_of_3x5},
      {{fp8, counted_scales(plain, {130, 1})}, "(200, 1), one for each row"},
      {{fp8, counted_scales(plain, {2})}, "are of the shape (2); expected"},
      {{fp8, counted_scales(plain, {}), counted_scales(inverse, {2, 2})},
       "it has the scales \"x.weight_scale_inv\" and \"x.weight_scale\"; expected one of them"},
      {{fp8, random_codes(plain, "I8", {1})}, "are I8; expected F32, BF16, F16 or F8_E8M0"},
      {{fp8, counted_scales(plain, {}), counted_scales("x.weight_zero_point", {})},
       "quantization without zero points"},
      {{fp8, counted_scales(inverse, {2, 2})},
       "config.json': quantization_config: quant_method is "
       "\"gptq\"",
       R"({"quant_method": "gptq"})"},
      {{blocks}, "tensor \"y_blocks\" is packed: its scales, tensor \"y_scales\", are missing"},
      {{scales},
       "tensor \"y_scales\" is packed: it is the scales of a tensor \"y_blocks\", which "
       "is missing"},
      {{blocks, random_codes("y_scales", "U8", {2, 3, 3})},
       "are U8 (2, 3, 3); expected U8 (2, 3, 2)"},
      {{blocks, counted_scales("y_scales", {2, 3, 2})}, "are F32 (2, 3, 2); expected U8"},
      {{random_codes("y_blocks", "U8", {2, 3, 2, 8}), scales},
       "its shape is (2, 3, 2, 8); expected experts, rows, columns / 32, 16"},
      {{random_codes("y_blocks", "U8", {6, 2, 16}), random_codes("y_scales", "U8", {6, 2})},
       "its shape is (6, 2, 16); expected experts"},
      {{blocks, scales, counted_scales("y", {1})}, "a tensor \"y\" is there, too"},
  };
  for (const Bad& file : files) {
    const ScratchFolder folder;
    write_stored(folder.file("model.safetensors"), file.tensors);
    if (*file.config != 0)
      write_bytes(folder.file("config.json"),
                  text(R"({"quantization_config": )", file.config, "}"));
    EXPECT_HAS(error_of([&] { DequantizingReader reader(folder.file("")); }), file.message);
  }
}

/// Bytes that are no quantized weights stay what they were.
TEST(DequantizingReader, OtherTensorsAreAsTheyAre) {
  const ScratchFolder folder;
  write_stored(folder.file("model.safetensors"),
               {random_codes("mask", "U8", {4}), counted_scales("y_blocks", {2}),
                counted_scales("z.weight", {2}), counted_scales("z.weight_scale", {1})});
  write_bytes(folder.file("config.json"), R"({"quantization_config": {"quant_method": "gptq"}})");
  DequantizingReader reader(folder.file(""));
  EXPECT_EQ(reader.tensors().size(), 4u);
  Floats values(2);
  reader.read("y_blocks", 0, 2, values.data());
  EXPECT_EQ(values[1], 2.0f / 3.0f);
  EXPECT_HAS(error_of([&] { reader.read("mask", 0, 1, values.data()); }), "is U8; expected F32");
  EXPECT_HAS(error_of([&] { reader.read("no", 0, 1, values.data()); }), "has no tensor \"no\"");
  std::uint8_t code = 0;
  SafetensorsReader plain(folder.file(""));
  EXPECT_HAS(error_of([&] { plain.read_bytes("z.weight", 0, 1, &code); }),
             "is F32; expected U8, F8_E4M3, F8_E5M2 or F8_E8M0");
  EXPECT_HAS(error_of([&] { plain.read_bytes("mask", 4, 1, &code); }), "it has 4");
}

}  // namespace
}  // namespace ostrakon::checkpoint
