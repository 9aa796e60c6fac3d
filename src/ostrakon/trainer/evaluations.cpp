// SPDX-License-Identifier: Apache-2.0
// What a Trainer computes without training: losses.
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/trainer/trainer.hpp>

namespace ostrakon::train {

double Trainer::evaluate(data::SampleSource& samples, std::int64_t batches) {
  require_state("Trainer::evaluate");
  const math::SubnormalsScope scope(settings_.subnormals);
  if (batches < 1) throw Error(text("evaluation of ", batches, " batches; expected 1 or more"));
  context_.samples = &samples;
  context_.counted.reset();
  double total = 0.0, shares = 0.0;
  PairMeans pairs;
  evaluated_terms_ = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    context_.first_sample = static_cast<std::uint64_t>(batch * settings_.global_batch_size);
    run(programs_.evaluate);
    const std::int64_t counted = context_.result.counted_terms;
    // 1 if all count: then this is the mean of the batches' means.
    const double share = static_cast<double>(counted) / static_cast<double>(settings_.step_terms());
    total += context_.result.loss * share;
    shares += share;
    evaluated_terms_ += counted;
    if (const auto& of_batch = context_.result.pairs) {
      pairs.chosen_log_ratio += of_batch->chosen_log_ratio * share;
      pairs.rejected_log_ratio += of_batch->rejected_log_ratio * share;
      pairs.preferred += of_batch->preferred * share;
    }
  }
  if (settings_.loss.are_of_pairs)
    evaluated_pairs_ = {pairs.chosen_log_ratio / shares, pairs.rejected_log_ratio / shares,
                        pairs.preferred / shares};
  return shares > 0.0 ? total / shares : 0.0;
}

double Trainer::evaluate_samples(data::SampleSource& samples, std::int64_t count) {
  const std::int64_t batch = settings_.global_batch_size;
  if (count == batch) return evaluate(samples, 1);
  require_state("Trainer::evaluate_samples");
  if (count < 1 || count > batch)
    throw Error(text("evaluation of ", count, " samples; expected 1 to ", batch));
  mesh_.world().run_collectively([&] { require_own_losses(settings_.loss, count); });
  const math::SubnormalsScope scope(settings_.subnormals);
  context_.samples = &samples;
  context_.first_sample = 0;
  context_.counted = CountedLosses{count, settings_.step_terms() * count / batch};
  run(programs_.evaluate);
  evaluated_terms_ = context_.result.counted_terms;
  evaluated_pairs_ = context_.result.pairs;
  return context_.result.loss;
}

std::vector<float> Trainer::losses(data::SampleSource& samples, std::uint64_t first) {
  require_state("Trainer::losses");
  const math::SubnormalsScope scope(settings_.subnormals);
  std::vector<float> all(
      static_cast<std::size_t>(settings_.loss.arrays() * settings_.step_terms()));
  context_.samples = &samples;
  context_.first_sample = first;
  context_.counted.reset();
  context_.kept = host_view(all);
  try {
    run(programs_.evaluate);
  } catch (...) {
    context_.kept = {};
    throw;
  }
  context_.kept = {};
  evaluated_terms_ = context_.result.counted_terms;
  if (mesh_.world().size() == 1) return all;
  // One rank has the bits of each loss, and the others have zeros.
  static_assert(sizeof(float) == sizeof(std::uint32_t));
  std::vector<std::uint64_t> bits(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint32_t own = 0;
    std::memcpy(&own, &all[i], sizeof own);
    bits[i] = own;
  }
  mesh_.world().all_reduce_sum(bits.data(), static_cast<int>(bits.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto own = static_cast<std::uint32_t>(bits[i]);
    std::memcpy(&all[i], &own, sizeof own);
  }
  return all;
}

}  // namespace ostrakon::train
