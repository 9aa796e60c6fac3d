// SPDX-License-Identifier: Apache-2.0
// Which algorithms products get, by the fake device's library, whose algorithms differ in bits.
#include <gtest/gtest.h>
#include <fake_device/products.hpp>

#include <fstream>
#include <map>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/gemm_facts.hpp>
#include <ostrakon/math/products/pinned_products.hpp>
#include <ostrakon/math/products/product_workspace.hpp>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/device_array.hpp"
#include "support/shared_folder.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;
using fake::ProductAlgorithm;
using math::DeviceProduct;
using math::ProductKind;

/// The library's usual suggestions again, and no observer, at the end of a test.
struct UsualLibrary {
  ~UsualLibrary() {
    fake::suggest_products(fake::default_products());
    fake::observe_products(nullptr);
    math::pin_products({});
  }
};

ProductAlgorithm whole(const std::string& name, double seconds = 0.0) {
  ProductAlgorithm one;
  one.name = name;
  one.seconds = seconds;
  return one;
}
ProductAlgorithm in_runs(const std::string& name, std::int64_t terms, double seconds = 0.0) {
  ProductAlgorithm one = whole(name, seconds);
  one.terms = terms;
  return one;
}

DeviceProduct product_of(bool turn_a, std::int64_t m, std::int64_t n, std::int64_t k) {
  DeviceProduct product;
  product.turn_a = turn_a;
  product.m = m;
  product.n = n;
  product.k = k;
  product.row_a = turn_a ? m : k;
  product.row_b = product.row_c = n;
  return product;
}

TEST(ProductKinds, HaveNoRows) {
  const math::ProductOperands aligned;
  const auto kind = [&](const DeviceProduct& product) { return math::kind_of(product, aligned); };
  const auto same = [&](const DeviceProduct& one, const DeviceProduct& other) {
    const ProductKind a = kind(one), b = kind(other);
    return !(a < b) && !(b < a);
  };
  const DeviceProduct forward = product_of(false, 64, 32, 16),
                      weights = product_of(true, 64, 32, 16);
  EXPECT_TRUE(same(forward, product_of(false, 8, 32, 16)));
  EXPECT_FALSE(same(forward, product_of(false, 64, 40, 16)));
  EXPECT_FALSE(same(forward, product_of(false, 64, 32, 24)));
  EXPECT_FALSE(same(weights, product_of(true, 64, 32, 8))) << "a leaf of another size";
  DeviceProduct other = weights;
  other.k = 8;
  other.varies = math::Varies::terms;
  DeviceProduct varies = weights;
  varies.varies = math::Varies::terms;
  EXPECT_TRUE(same(other, varies)) << "the tokens of an expert";
  other = forward;
  other.row_c = 33;
  EXPECT_EQ(kind(other).align_c, 4);
  EXPECT_EQ(math::text_of(kind(other)),
            "fp32 (any, 16) x (16, 32) -> fp32, rows aligned to 16, 16, 4 bytes");
}

TEST(AlgorithmTables, AreReadAsWritten) {
  math::AlgorithmTable table{"library 1", "device", {}};
  math::Algorithm& one =
      table.algorithms[math::kind_of(product_of(true, 64, 32, 16), math::ProductOperands())];
  one.attributes = {{"tile", "128 x 256"}, {"stages", "4"}};
  one.opaque = {1, 2, 0xffffffffffffffffu, 4, 5, 6, 7, 8};
  one.seconds = 3e-5;
  const math::AlgorithmTable read = math::AlgorithmTable::read(table.json());
  EXPECT_EQ(read.json(), table.json());
  EXPECT_EQ(read.digest(), table.digest());
  one.seconds = 1.0;
  EXPECT_EQ(read.digest(), table.digest()) << "times are no part of what determines bits";
  one.opaque[7] = 9;
  EXPECT_NE(read.digest(), table.digest());
  for (const auto& [from, to] :
       {std::pair{"products 1", "products 2"}, std::pair{"\"device\"", "\"x\""},
        std::pair{"\"fp32\"", "\"fp31\""}, std::pair{"ffffffff", "fffffffg"},
        std::pair{"{", "["}}) {
    std::string text = table.json();
    text.replace(text.find(from), std::string(from).size(), to);
    EXPECT_THROW(math::AlgorithmTable::read(text), Error) << to;
  }
}

TEST(ProductChoice, IsTheFastestOfEqualBits) {
  const UsualLibrary usual;
  ProductAlgorithm narrow = in_runs("narrow", 8);
  narrow.most_rows = 4;
  ProductAlgorithm not_by_row = whole("not by row");
  not_by_row.is_by_row = false;
  ProductAlgorithm begins_with_c = whole("begins with C");
  begins_with_c.adds_at_end = false;
  constexpr double slow = 0.02;
  struct Case {
    std::vector<ProductAlgorithm> suggested;
    const char* chosen;
    bool is_by_row = true;
  };
  const std::vector<Case> cases = {
      {{whole("first", slow), in_runs("other bits", 8), whole("fast")}, "fast"},
      {{whole("first"), whole("slow", slow)}, "first"},
      {{in_runs("first", 8), whole("other bits")}, "first"},
      {{in_runs("first", 8, slow), whole("other bits"), in_runs("fast", 8)}, "fast"},
      {{narrow, whole("first")}, "first"},
      {{whole("first", slow), not_by_row, begins_with_c}, "first"},
      {{not_by_row, in_runs("second", 8)}, "second"},
      {{not_by_row}, "not by row", false}};
  const test::DeviceArray<char> memory(1 << 20, char(0));
  for (const Case& one : cases)
    for (const bool turn_a : {false, true}) {
      if (turn_a && !one.is_by_row) continue;
      SCOPED_TRACE(text(one.chosen, " of ", one.suggested.size(), turn_a ? ", A transposed" : ""));
      fake::suggest_products(one.suggested);
      const DeviceProduct product = product_of(turn_a, 48, 24, 40);
      const math::Choice choice = math::choose_algorithm(
          Exec(), *math::product_library(), {math::kind_of(product, {}), product}, memory.view());
      EXPECT_EQ(choice.algorithm.attributes.front().value, one.chosen);
      EXPECT_EQ(choice.is_by_row, one.is_by_row);
      const math::Choice untimed = math::choose_algorithm(
          Exec(), *math::product_library(), {math::kind_of(product, {}), product}, View<char*>());
      EXPECT_EQ(untimed.algorithm.attributes.front().value,
                one.suggested[one.suggested.front().most_rows > 0 ? 1 : 0].name);
    }
  fake::suggest_products({narrow});
  const DeviceProduct product = product_of(false, 48, 24, 40);
  EXPECT_THROW(math::first_algorithm(*math::product_library(), product, math::kind_of(product, {})),
               Error);
}

/// The algorithms that products get, by their kinds.
class Seen {
 public:
  Seen() {
    fake::observe_products([this](const DeviceProduct& product, const std::string& algorithm) {
      algorithms_[math::text_of(math::kind_of(product, {}))].insert(algorithm);
    });
  }
  ~Seen() { fake::observe_products(nullptr); }
  /// Expects one algorithm for each kind, on all ranks, and returns all of them.
  std::set<std::string> one_each(comm::Communicator& world) const {
    std::string mine;
    for (const auto& [kind, names] : algorithms_)
      for (const std::string& name : names) mine += text(kind, "=", name, "\n");
    std::map<std::string, std::string> found;
    std::set<std::string> all;
    for (const std::string& of_rank : world.gather_texts(mine)) {
      std::istringstream lines(of_rank);
      for (std::string line; std::getline(lines, line);) {
        const std::size_t at = line.find('=');
        const std::string kind = line.substr(0, at), name = line.substr(at + 1);
        EXPECT_EQ(found.emplace(kind, name).first->second, name) << kind;
        all.insert(name);
      }
    }
    EXPECT_GT(found.size(), 6U);
    return all;
  }

 private:
  std::map<std::string, std::set<std::string>> algorithms_;
};

struct LayoutCase {
  std::string name;
  int ranks = 1;
  config::Settings settings;
};

template <class Change>
LayoutCase changed(const char* name, int ranks, config::Settings settings, const Change& change) {
  change(settings);
  return {name, ranks, settings};
}

std::vector<LayoutCase> layouts(const config::Settings& of) {
  using config::Settings;
  std::vector<LayoutCase> all = {{"as one", 1, of}};
  all.push_back(
      changed("replicas", 1, of, [](Settings& s) { s.parallel.sharding = plan::Sharding::none; }));
  all.push_back(changed("recomputed", 1, of,
                        [](Settings& s) { s.parallel.activation_checkpointing.every = 1; }));
  all.push_back(changed("context", 2, of, [](Settings& s) { s.context = 2; }));
  all.push_back(changed("tensor", 2, of, [](Settings& s) { s.tensor = 2; }));
  all.push_back(changed("stages", 2, of, [](Settings& s) { s.pipeline = 2; }));
  return all;
}

config::Settings small(DType gather) {
  config::Settings settings = in_pieces(small_llama(8));
  settings.runtime.streams = config::StreamsChoice::automatic;
  settings.runtime.graphs = config::GraphsChoice::never;  // products of a graph are given once
  settings.training.sequence_length = 64;
  settings.precision.gather = gather;
  return settings;
}

/// What a run of two steps leaves.
struct Ran {
  History history;
  train::ProductAlgorithms products;
  std::set<std::string> algorithms;  ///< that the products of its steps had
};

Ran run(const config::Settings& settings, MPI_Comm comm, const std::string& earlier = "") {
  mesh::Mesh mesh(gathered(comm), static_cast<int>(settings.ranks_per_node), settings.shard_group,
                  static_cast<int>(settings.pipeline));
  train::Trainer trainer = train::make_trainer(settings, mesh);
  trainer.take_products_of(earlier);
  trainer.allocate();
  trainer.initialize();
  const auto samples =
      data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                         settings.model.vocabulary, settings.training.seed, mesh.world());
  Ran ran;
  ran.products = trainer.products();
  const Seen seen;
  for (int step = 1; step <= 2; ++step) ran.history.add(trainer.step(*samples, step), trainer);
  ran.algorithms = seen.one_each(mesh.world());
  return ran;
}

math::Algorithm runs_of_8() { return math::product_library()->suggest({}, {}, 8).at(1); }

/// Writes a file that all ranks see, and returns its path.
std::string write(const ostrakon::testing::SharedFolder& folder, const std::string& name,
                  const std::string& content) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) std::ofstream(folder.file(name)) << content;
  MPI_Barrier(MPI_COMM_WORLD);
  return folder.file(name);
}

/// Every product of a kind has one algorithm, on every rank, and the bits are one rank's, by the
/// library's first algorithm, and by another one that a file names.
TEST(PinnedProducts, AreTheSameInEachLayout) {
  const UsualLibrary usual;
  const ostrakon::testing::SharedFolder folder;
  using Names = std::set<std::string>;
  for (const DType gather : {DType::fp32, DType::bf16}) {
    if (!math::is_row_partition_invariant(gather)) continue;
    const config::Settings settings = small(gather);
    const Ran reference = run(settings, MPI_COMM_SELF);
    math::AlgorithmTable other = math::AlgorithmTable::read(reference.products.json);
    for (auto& [kind, algorithm] : other.algorithms) algorithm = runs_of_8();
    config::Settings pinned = settings;
    pinned.runtime.products_file = write(folder, text(name(gather), ".json"), other.json());
    const Ran pinned_reference = run(pinned, MPI_COMM_SELF);
    EXPECT_NE(reference.history.digests, pinned_reference.history.digests)
        << "the algorithms have equal bits";
    EXPECT_EQ(pinned_reference.algorithms, Names{"runs of 8"});
    for (const LayoutCase& layout : layouts(settings)) {
      if (world_ranks() % layout.ranks != 0) continue;
      const std::string what = text(layout.name, ", ", name(gather));
      SCOPED_TRACE(what);
      const Ran ran = run(layout.settings, MPI_COMM_WORLD);
      expect_same_bits(ran.history, reference.history, what);
      EXPECT_EQ(ran.products.lines.find("not pinned"), std::string::npos) << ran.products.lines;
    }
    for (const LayoutCase& layout : layouts(pinned)) {
      const bool has_the_kinds = layout.settings.tensor == 1;
      if (world_ranks() % layout.ranks != 0 || !has_the_kinds) continue;
      const std::string what = text(layout.name, ", ", name(gather), ", pinned");
      SCOPED_TRACE(what);
      const Ran ran = run(layout.settings, MPI_COMM_WORLD);
      expect_same_bits(ran.history, pinned_reference.history, what);
      EXPECT_EQ(ran.algorithms, Names{"runs of 8"});
    }
  }
}

/// Each product of a step works in the memory that the plan has for it, and the choice of
/// algorithms in as much of the arena.
TEST(ProductWorkspaces, AreThoseOfThePlan) {
  const UsualLibrary usual;
  config::Settings settings = small(DType::fp32);
  settings.optimizer.kind = optim::OptimizerKind::muon;
  SmallRun run(settings);
  const plan::StepPlan& plan = run.trainer.program(plan::Purpose::train).plan;
  ASSERT_GE(plan.product_workspace, 0);
  const plan::Buffer& planned = plan.buffers[static_cast<std::size_t>(plan.product_workspace)];
  EXPECT_EQ(planned.bytes, fake::product_workspace_bytes);
  EXPECT_TRUE(planned.persistent);
  std::set<const std::byte*> seen;
  std::int64_t products = 0;
  fake::observe_products([&](const DeviceProduct&, const std::string&) {
    const View<std::byte*> room = math::ProductWorkspace::current();
    EXPECT_EQ(room.size(), fake::product_workspace_bytes);
    seen.insert(room.data());
    ++products;
  });
  run.step(1);
  fake::observe_products(nullptr);
  EXPECT_GT(products, 20);
  EXPECT_EQ(seen.size(), 1U);
}

/// Streams that multiply in one workspace would write over each other's: a plan in which that can
/// happen is refused.
TEST(ProductWorkspaces, OfTwoStreamsAreRefused) {
  SmallRun run(small(DType::fp32));
  plan::StepPlan plan = run.trainer.program(plan::Purpose::train).plan;
  const auto other = std::find_if(plan.actions.begin(), plan.actions.end(), [](const auto& action) {
    return action.stream != plan::Stream::compute && action.kind == plan::Kind::load &&
           action.micro_batch > 0;
  });
  ASSERT_NE(other, plan.actions.end());
  EXPECT_NO_THROW(plan::prove_memory(plan, plan::plan_memory(plan, plan::Space::device)));
  other->uses.push_back(
      {plan::Role::product_workspace, plan.product_workspace, plan::Access::write});
  other->waits.clear();
  EXPECT_THROW(plan::prove_memory(plan, plan::plan_memory(plan, plan::Space::device)),
               std::logic_error);
}

/// The layouts do compute other numbers of rows: with an algorithm whose bits depend on it, a
/// context rank's differ, and the run says so.
TEST(PinnedProducts, ThatDependOnRowsAreTold) {
  if (world_ranks() != 2) GTEST_SKIP() << "of two ranks, which share each sequence";
  const UsualLibrary usual;
  config::Settings settings = small(DType::fp32);
  ProductAlgorithm by_size = whole("by size");
  by_size.is_by_row = false;
  fake::suggest_products({by_size});
  const Ran reference = run(settings, MPI_COMM_SELF);
  settings.context = 2;
  const Ran ran = run(settings, MPI_COMM_WORLD);
  EXPECT_NE(ran.products.lines.find("bits may depend on the number of rows: fp32 (any, "),
            std::string::npos)
      << ran.products.lines;
  EXPECT_NE(ran.history.digests, reference.history.digests);
}

/// Each kind of a file whose algorithm the library refuses is told, whichever rank has it.
TEST(PinnedProducts, ThatAreRefusedAreTold) {
  const UsualLibrary usual;
  const ostrakon::testing::SharedFolder folder;
  config::Settings settings = small(DType::fp32);
  if (world_ranks() % 2 == 0) settings.pipeline = 2;
  ProductAlgorithm narrow = whole("narrow");
  narrow.most_rows = 1;
  fake::suggest_products({whole("first"), narrow});
  math::AlgorithmTable table =
      math::AlgorithmTable::read(run(settings, MPI_COMM_WORLD).products.json);
  for (auto& [kind, algorithm] : table.algorithms)
    algorithm = math::product_library()->suggest({}, {}, 8).at(1);
  settings.runtime.products_file = write(folder, "narrow.json", table.json());
  const Ran ran = run(settings, MPI_COMM_WORLD);
  EXPECT_EQ(ran.algorithms, std::set<std::string>{"first"});
  for (const auto& [kind, algorithm] : table.algorithms)
    EXPECT_NE(ran.products.lines.find("not pinned: " + math::text_of(kind)), std::string::npos)
        << ran.products.lines;
}

TEST(PinnedProducts, OfAnEarlierRunAreTaken) {
  const UsualLibrary usual;
  const ostrakon::testing::SharedFolder folder;
  const config::Settings settings = small(DType::fp32);
  const auto expect_line = [](const Ran& ran, const std::string& part) {
    EXPECT_NE(ran.products.lines.find(part), std::string::npos) << ran.products.lines;
  };
  math::AlgorithmTable table =
      math::AlgorithmTable::read(run(settings, MPI_COMM_WORLD).products.json);
  for (auto& [kind, algorithm] : table.algorithms) algorithm = runs_of_8();
  const std::string own = write(folder, "products.json", table.json());
  const Ran resumed = run(settings, MPI_COMM_WORLD, own);
  EXPECT_EQ(math::AlgorithmTable::read(resumed.products.json).digest(), table.digest());
  EXPECT_EQ(resumed.algorithms, std::set<std::string>{"runs of 8"});
  expect_line(resumed, text(table.algorithms.size(), " of ", own, ", 0 timed"));
  table.algorithms.erase(table.algorithms.begin());
  const std::string lacks = write(folder, "lacks.json", table.json());
  expect_line(run(settings, MPI_COMM_WORLD, lacks), ", 1 timed by fake products 1");
  table.library = "fake products 0";
  const std::string strange = write(folder, "strange.json", table.json());
  const std::string why_not =
      "its algorithms are of fake products 0, this build multiplies by fake products 1";
  expect_line(run(settings, MPI_COMM_WORLD, strange), why_not);
  config::Settings asked = settings;
  for (const std::string& file :
       {strange, folder.file("missing.json"), write(folder, "empty.json", "{}")}) {
    asked.runtime.products_file = file;
    EXPECT_THROW(run(asked, MPI_COMM_WORLD), CollectiveError) << file;
  }
}

}  // namespace
