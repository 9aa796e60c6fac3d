// SPDX-License-Identifier: Apache-2.0
// A change to the planner shows here which plans change. Where they are meant to:
//   build-ci/tests/plan/list_plans input_decks > tests/plan/listings.txt
// and the commit says which and why.

#include <gtest/gtest.h>

#include <fstream>

#include "plan/listing.hpp"

namespace {

using namespace ostrakon::tests;

TEST(Listings, PlansAreThoseOfBefore) {
  const std::string source = OSTRAKON_SOURCE_DIR;
  std::ifstream file(source + "/tests/plan/listings.txt");
  ASSERT_TRUE(file.is_open());
  std::vector<std::string> expected;
  for (std::string line; std::getline(file, line);) expected.push_back(line);
  const std::vector<std::string> hashes = listing_hashes(listed_plans(source + "/input_decks"));
  ASSERT_EQ(hashes.size(), expected.size());
  for (std::size_t i = 0; i < hashes.size(); ++i) EXPECT_EQ(hashes[i], expected[i]);
}

// Every field that decides something changes the listing: some of each kind of action and buffer.
TEST(Listings, SeeEveryField) {
  using namespace ostrakon::plan;
  const StepPlan plan = listed_plans("").front().make();
  const std::string before = listing(plan);
  const auto expect_seen = [&](const char* what, auto change) {
    StepPlan changed = plan;
    change(changed);
    EXPECT_NE(listing(changed), before) << what;
  };
  const Span other{Axis::replicate, 7, 5};
  for (std::size_t a = 0; a < plan.actions.size(); a += 5) {
    const auto expect_seen_in = [&](const char* what, auto change) {
      expect_seen(what, [&](StepPlan& p) { change(p.actions[a]); });
    };
    expect_seen_in(
        "kind", [](Action& x) { x.kind = x.kind == Kind::release ? Kind::loss : Kind::release; });
    expect_seen_in("stream", [](Action& x) {
      x.stream = x.stream == Stream::reduce ? Stream::gather : Stream::reduce;
    });
    expect_seen_in("unit", [](Action& x) { ++x.unit; });
    expect_seen_in("micro_batch", [](Action& x) { ++x.micro_batch; });
    expect_seen_in("span", [&](Action& x) { x.span = other; });
    expect_seen_in("elements", [](Action& x) { x.elements += 64; });
    expect_seen_in("element_bytes", [](Action& x) { x.element_bytes += 2; });
    expect_seen_in("converts", [](Action& x) { x.converts ^= true; });
    expect_seen_in("flats", [](Action& x) { ++x.flats.end; });
    expect_seen_in("divided", [&](Action& x) { x.divided.push(other); });
    expect_seen_in("flops", [](Action& x) { x.flops += 1.0; });
    expect_seen_in("gradients_opened", [](Action& x) { x.gradients_opened ^= true; });
    expect_seen_in("may_be_empty", [](Action& x) { x.may_be_empty ^= true; });
    expect_seen_in("empty_if_even", [](Action& x) { x.empty_if_even ^= true; });
    expect_seen_in("waits", [](Action& x) { x.waits.push_back(0); });
    expect_seen_in("uses", [](Action& x) { x.uses.push_back({Role::sums, 0, Access::read}); });
    if (plan.actions[a].uses.empty()) continue;
    expect_seen_in("buffer", [](Action& x) { ++x.uses.back().buffer; });
    expect_seen_in("role", [](Action& x) {
      x.uses.back().role = x.uses.back().role == Role::released ? Role::sums : Role::released;
    });
    expect_seen_in("access", [](Action& x) {
      Access& access = x.uses.back().access;
      access = access == Access::read ? Access::write : Access::read;
    });
  }
  for (std::size_t b = 0; b < plan.buffers.size(); b += 5) {
    const auto expect_seen_in = [&](const char* what, auto change) {
      expect_seen(what, [&](StepPlan& p) { change(p.buffers[b]); });
    };
    expect_seen_in("name", [](Buffer& x) { x.name += "s"; });
    expect_seen_in("category", [](Buffer& x) {
      x.category = x.category == Category::other ? Category::staging : Category::other;
    });
    expect_seen_in("bytes", [](Buffer& x) { ++x.bytes; });
    expect_seen_in(
        "space", [](Buffer& x) { x.space = x.space == Space::host ? Space::device : Space::host; });
    expect_seen_in("first", [](Buffer& x) { ++x.first; });
    expect_seen_in("last", [](Buffer& x) { ++x.last; });
    expect_seen_in("persistent", [](Buffer& x) { x.persistent ^= true; });
    expect_seen_in("flats", [](Buffer& x) { ++x.flats.first; });
    expect_seen_in("divided", [&](Buffer& x) { x.divided.push(other); });
  }
  for (Layout Layouts::*layout : {&Layouts::masters, &Layouts::compute, &Layouts::gathered,
                                  &Layouts::gradient, &Layouts::update}) {
    expect_seen("divided", [&](StepPlan& p) { (p.layouts.*layout).divided.push(other); });
    expect_seen("element_bytes", [&](StepPlan& p) { ++(p.layouts.*layout).element_bytes; });
  }
  for (int PlannedUnit::*buffer :
       {&PlannedUnit::masters, &PlannedUnit::working, &PlannedUnit::first_moments,
        &PlannedUnit::second_moments, &PlannedUnit::gradients})
    expect_seen("state", [&](StepPlan& p) { ++(p.units.back().*buffer); });
}

}  // namespace
