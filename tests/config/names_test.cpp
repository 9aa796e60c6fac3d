// SPDX-License-Identifier: Apache-2.0

// Each enumerator that people or programs see has exactly one name, and no two have the same.

#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/checkpoint/shard_map.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/timing/traffic.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace ostrakon;

/// Compilers print a template argument of an enum as the enumerator or, for a value without one, as
/// a cast: "value = (Kind)77".
template <class Enum, Enum value>
constexpr bool is_enumerator() {
  constexpr std::string_view function = __PRETTY_FUNCTION__;
  constexpr std::string_view argument = "value = ";
  const std::size_t found = function.rfind(argument);
  return found != std::string_view::npos && function[found + argument.size()] != '(';
}

template <class Enum, int... values>
std::vector<Enum> enumerators(std::integer_sequence<int, values...>) {
  constexpr bool is[] = {is_enumerator<Enum, static_cast<Enum>(values)>()...};
  std::vector<Enum> found;
  for (std::size_t value = 0; value < std::size(is); ++value)
    if (is[value]) found.push_back(static_cast<Enum>(value));
  return found;
}

/// Returns all enumerators from 0 to 63.
template <class Enum>
std::vector<Enum> enumerators() {
  return enumerators<Enum>(std::make_integer_sequence<int, 64>());
}

/// Returns what is wrong with a table of names; empty if each enumerator has its own name.
template <class Enum, std::size_t count>
std::string mistakes(const Named<Enum> (&names)[count]) {
  std::string found;
  for (const Enum value : enumerators<Enum>()) {
    const auto rows = std::count_if(std::begin(names), std::end(names),
                                    [&](const Named<Enum>& one) { return one.value == value; });
    if (rows != 1)
      found += "enumerator " + std::to_string(static_cast<int>(value)) + " is named " +
               std::to_string(rows) + " times; ";
  }
  if (count != enumerators<Enum>().size()) found += "names of what is no enumerator; ";
  for (const Named<Enum>& one : names) {
    const std::string name = one.name;
    if (name.empty() || name == "?") found += "an empty name; ";
    if (name_in(names, one.value) != name || find_named(names, name) != one.value)
      found += name + " stands for two; ";
  }
  return found;
}

enum class Fruit { apple, pear = 3, plum };

TEST(Names, FindsEnumerators) {
  EXPECT_EQ(enumerators<Fruit>(), (std::vector<Fruit>{Fruit::apple, Fruit::pear, Fruit::plum}));
}

TEST(Names, SeesWhatIsWrongWithATable) {
  constexpr Named<Fruit> right[] = {
      {Fruit::plum, "plum"}, {Fruit::apple, "apple"}, {Fruit::pear, "pear"}};
  constexpr Named<Fruit> short_by_one[] = {{Fruit::apple, "apple"}, {Fruit::pear, "pear"}};
  constexpr Named<Fruit> twice[] = {
      {Fruit::apple, "apple"}, {Fruit::pear, "pear"}, {Fruit::pear, "other pear"}};
  constexpr Named<Fruit> same[] = {
      {Fruit::apple, "apple"}, {Fruit::pear, "pear"}, {Fruit::plum, "pear"}};
  constexpr Named<Fruit> unnamed[] = {
      {Fruit::apple, "apple"}, {Fruit::pear, "pear"}, {Fruit::plum, "?"}};
  EXPECT_EQ(mistakes(right), "");
  EXPECT_NE(mistakes(short_by_one), "");
  EXPECT_NE(mistakes(twice), "");
  EXPECT_NE(mistakes(same), "");
  EXPECT_NE(mistakes(unnamed), "");
  EXPECT_STREQ(name_in(short_by_one, Fruit::plum), "?");
  EXPECT_FALSE(find_named(right, "cherry").has_value());
  EXPECT_FALSE(find_named(right, "").has_value());
}

TEST(Names, EachEnumeratorHasOne) {
  EXPECT_EQ(mistakes(dtype_names), "");
  EXPECT_EQ(mistakes(hdf5::type_names), "");
  EXPECT_EQ(mistakes(math::norm_names), "");
  EXPECT_EQ(mistakes(model::positions_names), "");
  EXPECT_EQ(mistakes(math::activation_names), "");
  EXPECT_EQ(mistakes(model::router_balance_names), "");
  EXPECT_EQ(mistakes(math::router_score_names), "");
  EXPECT_EQ(mistakes(math::router_group_score_names), "");
  EXPECT_EQ(mistakes(data::dataset_names), "");
  EXPECT_EQ(mistakes(data::split_names), "");
  EXPECT_EQ(mistakes(optim::optimizer_names), "");
  EXPECT_EQ(mistakes(optim::tail_names), "");
  EXPECT_EQ(mistakes(checkpoint::files_names), "");
  EXPECT_EQ(mistakes(checkpoint::state_names), "");
  EXPECT_EQ(mistakes(config::streams_choice_names), "");
  EXPECT_EQ(mistakes(config::paths_from_names), "");
  EXPECT_EQ(mistakes(plan::sharding_names), "");
  EXPECT_EQ(mistakes(plan::optimizer_group_names), "");
  EXPECT_EQ(mistakes(plan::accumulation_names), "");
  EXPECT_EQ(mistakes(plan::leaf_order_names), "");
  EXPECT_EQ(mistakes(plan::offload_names), "");
  Named<plan::Kind> kinds[plan::kinds] = {};
  for (int k = 0; k < plan::kinds; ++k)
    kinds[k] = {plan::kind_table[k].value, plan::kind_table[k].name};
  EXPECT_EQ(mistakes(kinds), "");
  EXPECT_EQ(mistakes(plan::stream_names), "");
  EXPECT_EQ(mistakes(plan::role_names), "");
  EXPECT_EQ(mistakes(plan::access_names), "");
  EXPECT_EQ(mistakes(plan::category_names), "");
  EXPECT_EQ(mistakes(plan::space_names), "");
  EXPECT_EQ(mistakes(plan::purpose_names), "");
  EXPECT_EQ(mistakes(plan::axis_names), "");
  EXPECT_EQ(mistakes(plan::group_names), "");
}

}  // namespace
