// SPDX-License-Identifier: Apache-2.0
// What changes no bit of a training step, nor of decoding: what is computed again and when, what is
// frozen and how blocks are grouped, which calls are one kernel, how units are called, and on how
// many threads kernels run.
#include <gtest/gtest.h>

#include <map>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/decoder_model.hpp>

#include "model/freezes.hpp"
#include "model/model_run.hpp"
#include "support/covering.hpp"
#include "support/trials.hpp"

namespace ostrakon::test {
namespace {

/// What is left behind, by names that do not depend on how blocks are grouped into units.
using Bits = std::map<std::string, std::vector<unsigned char>>;

constexpr std::int64_t automatic = 0, as_it_is = -1;
/// Even and uneven groups of blocks, and more than there are.
constexpr std::int64_t groupings[] = {as_it_is, 1, 2, 4, 100, automatic};

enum class Backward { at_once, behind_recomputation, deferred };
enum class Called { with_type, without_type, on_one_thread };

/// One way to make a step.
struct Way {
  ModelCase which;
  model::Recompute recompute;
  model::Frozen frozen;
  Backward backward = Backward::at_once;
  Called called = Called::with_type;
};

/// An instance of Exec with one thread; of as many as all have where this Kokkos has no other.
Exec one_thread() {
#if defined(KOKKOS_ENABLE_OPENMP) && KOKKOS_VERSION >= 40000
  // Instances share the threads, one each.
  const std::vector<int> weights(static_cast<std::size_t>(host_threads()), 1);
  return Kokkos::Experimental::partition_space(Exec(), weights).front();
#else
  return Exec();
#endif
}

template <class T>
constexpr DType dtype_of = std::is_same<T, bf16>::value   ? DType::bf16
                           : std::is_same<T, fp16>::value ? DType::fp16
                                                          : DType::fp32;

/// All gradients of what is trained are written, and nothing else of these arrays.
template <class T>
void expect_gradients_alone_written(const ModelRun<T>& run) {
  std::vector<std::vector<bool>> written;
  for (int u = 0; u < run.units(); ++u)  // a tied head's gaps are zeros
    written.emplace_back(run.gradients[u].size(), run.opened(u));
  run.for_each_parameter([&](int u, const model::Parameter& p) {
    if (!p.frozen) std::fill_n(written[u].begin() + p.offset, p.elements(), true);
  });
  for (int u = 0; u < run.units(); ++u) {
    const auto flat = run.gradients[u].values();
    for (std::size_t i = 0; i < flat.size(); ++i)
      ASSERT_EQ(std::isnan(flat[i]), !written[u][i])
          << "gradient " << i << " of " << run.description.units[u].name;
  }
}

template <class T>
Bits bits_of_step(const Way& way) {
  ModelRun<T> run(way.which, way.recompute, way.frozen);
  if (way.called == Called::without_type)
    run.untyped = model::make_decoder(dtype_of<T>, way.which.settings, way.which.leaf,
                                      way.recompute, way.frozen);
  if (way.called == Called::on_one_thread) run.exec = one_thread();
  run.forward();
  run.backward(compute_t<T>(0.5), way.backward == Backward::behind_recomputation);
  run.expect_guards_intact();
  expect_gradients_alone_written(run);
  Bits all;
  all["losses"] = bits(run.losses());
  if (run.first_trained() == 0) all["gradient of the input"] = bits(run.gradient.values());
  for (int u = 0; u < run.units(); ++u) {
    const auto& parameters = run.decoder.unit(u).parameters();  // a tied head may have none
    const std::string owner = parameters.empty() ? "head" : parameters.back().owner;
    all["output of " + owner] = bits(run.outputs[u].values());
  }
  run.for_each_parameter([&](int u, const model::Parameter& p) {
    const auto [at, is_new] = all.emplace(p.full_name(), bits(part(run.segment(u, p).values(), p)));
    EXPECT_TRUE(is_new) << at->first << " is there twice";
    if (!p.frozen) all["gradient of " + p.full_name()] = bits(part(run.gradients[u].values(), p));
  });
  return all;
}

/// Logits of a sequence, whose first rows are decoded at once.
template <class T>
Bits bits_of_decoding(const Way& way) {
  ModelCase which = way.which;
  which.leaf = {1, 13};
  const ModelRun<T> tokens(which);
  return {{"logits", bits(decoded_outputs(which, tokens, way.frozen).back())}};
}

/// All that the varied way leaves behind, the plain way does, too.
template <class T>
void expect_same_bits(const Way& varied, const Way& plain) {
  for (Bits (*bits_of)(const Way&) : {&bits_of_step<T>, &bits_of_decoding<T>}) {
    const Bits found = bits_of(varied), expected = bits_of(plain);
    for (const auto& [name, values] : found) {
      const auto same = expected.find(name);
      // Units of several blocks have fewer outputs; all else has a name that plain ones have.
      ASSERT_TRUE(same != expected.end()) << name;
      EXPECT_TRUE(values == same->second) << name;
    }
  }
}

TEST(Bits, DependOnNoWayOfComputing) {
  std::vector<ModelCase> cases = model_cases();
  for (const auto& more : {long_cases(), deep_cases(6)})
    cases.insert(cases.end(), more.begin(), more.end());
  const std::vector<Freeze> all_freezes = freezes();
  std::vector<model::Recompute> recomputes = recompute_choices();
  for (const model::Recompute& kept : kept_choices()) recomputes.push_back(kept);
  const auto count = [](const auto& choices) { return static_cast<int>(std::size(choices)); };
  enum Factor { type, which, recompute, freeze, grouping, backward, called, fused };
  const auto is_valid = [](const tests::Choices& row) {
    // Models without types have 32 bits at most.
    if (row[type] == 1 && row[called] == static_cast<int>(Called::without_type)) return false;
    // All models with all freezes are most of the rows: a third of these pairs.
    return (row[which] + row[freeze]) % tests::every_nth(3) == 0;
  };
  for (const tests::Choices& row : tests::covering_rows(
           {4, count(cases), count(recomputes), count(all_freezes), count(groupings), 3, 3, 2},
           is_valid)) {
    Way plain{cases[row[which]], {}, {}}, varied = plain;
    plain.which.settings.blocks_per_unit = 1;
    varied.recompute = recomputes[row[recompute]];
    varied.frozen = all_freezes[row[freeze]].frozen;
    if (groupings[row[grouping]] != as_it_is)
      varied.which.settings.blocks_per_unit = groupings[row[grouping]];
    varied.backward = static_cast<Backward>(row[backward]);
    varied.which.leaf.defers_gradients = varied.backward == Backward::deferred;
    varied.called = static_cast<Called>(row[called]);
    plain.which.leaf.fuses = false;
    varied.which.leaf.fuses = row[fused] == 1;
    SCOPED_TRACE(::testing::Message()
                 << varied.which.name << ", " << to_string(varied.recompute) << ", "
                 << all_freezes[row[freeze]].name << ", blocks_per_unit "
                 << varied.which.settings.blocks_per_unit << ", type " << row[type] << ", backward "
                 << row[backward] << ", called " << row[called] << ", fuses " << row[fused]);
    // On how many threads products run may change their bits.
    math::set_gemm_threads(varied.called == Called::on_one_thread ? 1 : host_threads());
    constexpr decltype(&expect_same_bits<float>) expect[] = {
        expect_same_bits<float>, expect_same_bits<double>, expect_same_bits<bf16>,
        expect_same_bits<fp16>};
    expect[row[type]](varied, plain);
    if (::testing::Test::HasFailure()) break;
  }
  math::set_gemm_threads(host_threads());
}

}  // namespace
}  // namespace ostrakon::test
