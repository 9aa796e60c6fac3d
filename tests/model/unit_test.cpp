// SPDX-License-Identifier: Apache-2.0
// Which elements of parameters the pieces of a unit have, and where they lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/unit.hpp>

#include "support/scratch_folder.hpp"

namespace ostrakon::test {
namespace {

using model::ElementRuns;
using model::Parameter;
using Elements = std::vector<std::int64_t>;

Elements elements_of(const ElementRuns& runs) {
  Elements all;
  runs.for_each([&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) all.push_back(first + i);
  });
  return all;
}

Elements elements_of(const std::vector<ElementRuns>& several) {
  Elements all;
  for (const ElementRuns& runs : several)
    for (const std::int64_t element : elements_of(runs)) all.push_back(element);
  return all;
}

Parameter cut(const std::string& name, const std::vector<std::int64_t>& shape, model::Cut how,
              bool frozen = false) {
  Parameter parameter = Parameter::zeros(name, shape);
  parameter.cut = std::move(how);
  parameter.frozen = frozen;
  return parameter;
}

TEST(ElementRuns, GoOneAfterTheOther) {
  EXPECT_EQ(elements_of(ElementRuns::in_one(5, 3)), (Elements{5, 6, 7}));
  EXPECT_EQ(elements_of(ElementRuns::in_one(5, 0)), Elements());
  EXPECT_EQ(elements_of(ElementRuns{4, 6, 2, 10, 0}), (Elements{4, 5, 14, 15, 24, 25}));
  EXPECT_EQ(elements_of(ElementRuns{4, 5, 2, 10, 1}), (Elements{5, 14, 15, 24, 25}));
}

/// A range may be in one run or in several, and may begin within a run.
TEST(ElementRuns, ARangeIsAPartOfThem) {
  for (const ElementRuns& runs :
       {ElementRuns::in_one(7, 12), ElementRuns{7, 12, 3, 10, 0}, ElementRuns{7, 12, 12, 10, 0},
        ElementRuns{7, 10, 4, 10, 2}, ElementRuns{0, 6, 1, 2, 0}}) {
    const Elements all = elements_of(runs);
    ASSERT_EQ(static_cast<std::int64_t>(all.size()), runs.count);
    for (std::int64_t begin = 0; begin <= runs.count; ++begin)
      for (std::int64_t size = 0; size <= runs.count - begin; ++size) {
        const ElementRuns some = runs.range(begin, size);
        const Elements expected(all.begin() + begin, all.begin() + begin + size);
        EXPECT_EQ(some.count, size);
        EXPECT_EQ(elements_of(some), expected)
            << size << " from " << begin << " on of runs of " << runs.run;
        for (std::int64_t in = 0; in <= size; ++in)
          EXPECT_EQ(elements_of(some.range(in, size - in)),
                    Elements(expected.begin() + in, expected.end()))
              << size - in << " from " << begin << " + " << in << " on of runs of " << runs.run;
      }
  }
}

/// Pieces by plain loops: which piece has a row or a column, in the order of elements.
Elements expected_piece(const Parameter& parameter, std::int64_t piece, std::int64_t pieces) {
  const std::int64_t rows = parameter.rows(), columns = parameter.columns();
  std::vector<std::int64_t> sections = parameter.cut.sections;
  if (sections.empty()) sections = {rows};
  std::vector<std::int64_t> piece_of_row;
  for (const std::int64_t section : sections)
    for (std::int64_t row = 0; row < section; ++row)
      piece_of_row.push_back(row / ((section + pieces - 1) / pieces));
  Elements all;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      if ((parameter.cut.by_columns ? column / (columns / pieces) : piece_of_row[row]) == piece)
        all.push_back(row * columns + column);
  return all;
}

TEST(Parameter, PiecesHaveEachElementOnce) {
  struct Case {
    Parameter parameter;
    std::int64_t pieces, most_rows, most_columns;
  };
  for (const Case& c :
       {Case{cut("qkv", {24, 5}, {false, {16, 4, 4}}), 4, 6, 5},
        Case{cut("qkv.bias", {24}, {false, {16, 4, 4}}), 2, 12, 1},
        Case{cut("out", {5, 24}, {true, {}}), 4, 5, 6}, Case{cut("norm", {12}, {}), 3, 4, 1},
        Case{cut("words", {10, 3}, {}), 4, 3, 3}, Case{cut("deep", {4, 3, 2}, {}), 2, 2, 6},
        Case{cut("deep", {4, 3, 2}, {true, {}}), 3, 4, 2}, Case{cut("whole", {4, 3}, {}), 1, 4, 3},
        Case{cut("whole", {4, 3}, {true, {}}), 1, 4, 3}}) {
    std::vector<Parameter> parameters = {c.parameter};
    model::lay_out_parameters(parameters, "owner", {}, c.pieces);
    const Parameter& parameter = parameters[0];
    EXPECT_EQ(parameter.pieces, c.pieces);
    EXPECT_EQ(parameter.piece_rows(c.pieces), c.most_rows) << parameter.name;
    EXPECT_EQ(parameter.piece_columns(c.pieces), c.most_columns) << parameter.name;
    EXPECT_EQ(parameter.piece_elements(), c.most_rows * c.most_columns) << parameter.name;
    Elements all;
    for (std::int64_t piece = 0; piece < c.pieces; ++piece) {
      const Elements own = elements_of(parameter.elements_of_piece(piece));
      EXPECT_EQ(own, expected_piece(parameter, piece, c.pieces))
          << parameter.name << ", piece " << piece << " of " << c.pieces;
      EXPECT_GE(own.size(), 1u);
      EXPECT_LE(static_cast<std::int64_t>(own.size()), parameter.piece_elements());
      all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(all.begin(), all.end());
    Elements every(parameter.elements());
    std::iota(every.begin(), every.end(), 0);
    EXPECT_EQ(all, every) << parameter.name;
  }
}

/// A segment has all first pieces, then all second ones, and so on, each where it is aligned.
TEST(Parameter, PiecesOfASegmentAreEqualPartsOfIt) {
  const auto is_frozen = [](const std::string& name) { return name == "block.3.frozen"; };
  for (const std::int64_t pieces : {1, 2, 4}) {
    std::vector<Parameter> parameters = {
        cut("qkv", {24, 5}, {false, {16, 4, 4}}), cut("frozen", {5, 24}, {true, {}}),
        cut("words", {7, 3}, {}), cut("also", {8}, {}, true), cut("out", {5, 24}, {true, {}})};
    const model::SegmentSizes sizes =
        model::lay_out_parameters(parameters, "block.3", is_frozen, pieces);
    // In one piece 120, 21 and 120 elements, and 120 and 8 that are frozen; in more below 64 each.
    const std::int64_t trained = pieces == 1 ? 128 + 64 + 128 : 3 * 64;
    const std::int64_t frozen = pieces == 1 ? 128 + 64 : 2 * 64;
    EXPECT_EQ(sizes.trained, pieces * trained);
    EXPECT_EQ(sizes.frozen, pieces * frozen);
    std::vector<int> used_trained(sizes.trained), used_frozen(sizes.frozen);
    for (const Parameter& parameter : parameters) {
      EXPECT_EQ(parameter.owner, "block.3");
      EXPECT_EQ(parameter.frozen, parameter.name == "frozen" || parameter.name == "also");
      EXPECT_EQ(parameter.piece_stride, parameter.frozen ? frozen : trained);
      EXPECT_EQ(parameter.offset % model::parameter_alignment, 0);
      EXPECT_LE(parameter.offset + parameter.piece_elements(), parameter.piece_stride);
      std::vector<int>& used = parameter.frozen ? used_frozen : used_trained;
      for (std::int64_t piece = 0; piece < pieces; ++piece)
        for (std::int64_t i = 0; i < parameter.piece_elements(); ++i)
          ++used.at(parameter.offset + piece * parameter.piece_stride + i);
    }
    EXPECT_EQ(*std::max_element(used_trained.begin(), used_trained.end()), 1);
    EXPECT_EQ(*std::max_element(used_frozen.begin(), used_frozen.end()), 1);
  }
}

TEST(Parameter, PiecesThatCanNotBeAreRefused) {
  const auto refusal = [](const Parameter& parameter, std::int64_t pieces) {
    return ostrakon::testing::error_of([&] {
      std::vector<Parameter> parameters = {parameter};
      model::lay_out_parameters(parameters, "block.3", {}, pieces);
    });
  };
  EXPECT_EQ(refusal(cut("out", {5, 10}, {true, {}}), 4),
            "block.3.out: 10 columns can't be cut into 4 pieces");
  EXPECT_EQ(refusal(cut("out", {5, 10}, {true, {}}), 5), "no error");
  EXPECT_EQ(refusal(cut("out", {5, 10}, {true, {}}), 20),
            "block.3.out: 10 columns can't be cut into 20 pieces");
  EXPECT_EQ(refusal(cut("qkv", {24, 5}, {false, {16, 4, 4}}), 8),
            "block.3.qkv: 4 rows can't be cut into 8 pieces");
  EXPECT_EQ(refusal(cut("qkv", {24, 5}, {false, {16, 5, 3}}), 2),
            "block.3.qkv: 5 rows can't be cut into 2 pieces");
  // All rows together may leave the last piece fewer, but not none.
  EXPECT_EQ(refusal(cut("words", {5, 2}, {}), 3), "no error");
  EXPECT_EQ(refusal(cut("words", {4, 2}, {}), 3),
            "block.3.words: 4 rows can't be cut into 3 pieces");
  EXPECT_EQ(refusal(cut("words", {9, 2}, {}), 4),
            "block.3.words: 9 rows can't be cut into 4 pieces");
  EXPECT_EQ(refusal(cut("words", {4, 2}, {}), 5),
            "block.3.words: 4 rows can't be cut into 5 pieces");
  EXPECT_EQ(refusal(cut("words", {4, 2}, {}), 4), "no error");
  // What is not cut fits whatever it has.
  EXPECT_EQ(refusal(cut("qkv", {7, 3}, {false, {4, 3}}), 1), "no error");
}

/// Calls with a buffer and without one take equal places.
TEST(Arrays, AreHandedOutOneAfterTheOther) {
  const auto take_all = [](model::Arrays<float>& arrays) {
    std::vector<std::pair<const void*, std::int64_t>> taken;  // where, and how many bytes
    const auto ids = arrays.take<std::int32_t>(5);
    const auto none = arrays.take<double>(0);
    const auto matrix = arrays.matrix(3, 7);
    const auto sums = arrays.take<double>(9);
    EXPECT_FALSE(none);
    if (ids) taken = {{ids.data(), 20}, {matrix.data(), 84}, {sums.data(), 72}};
    EXPECT_EQ(matrix.rows(), 3);
    EXPECT_EQ(matrix.columns(), 7);
    return taken;
  };
  model::Arrays<float> sizes;
  EXPECT_TRUE(take_all(sizes).empty());
  EXPECT_EQ(sizes.size(), 2 * 256 + 72);

  std::vector<std::byte> memory(sizes.size());
  model::Arrays<float> arrays(View<std::byte*>(memory.data(), sizes.size()));
  const auto taken = take_all(arrays);
  EXPECT_EQ(arrays.size(), sizes.size());
  ASSERT_EQ(taken.size(), 3u);
  const std::byte* end = memory.data();
  for (const auto& [where, bytes] : taken) {
    const auto* const begin = static_cast<const std::byte*>(where);
    EXPECT_GE(begin, end);
    EXPECT_EQ((begin - memory.data()) % 256, 0);
    end = begin + bytes;
  }
  EXPECT_LE(end, memory.data() + memory.size());
}

}  // namespace
}  // namespace ostrakon::test
