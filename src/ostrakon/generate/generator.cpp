// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/generate/generator.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/handlers/unit_buffers.hpp>

namespace ostrakon::train {

using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

Generator::Generator(const config::Settings& settings, checkpoint::ParameterSource& weights)
    : settings_(settings) {
  model::LeafShape leaf{1, settings_.training.sequence_length};
  leaf.decoded_rows = std::min(leaf.tokens, tokens_at_once);
  decoder_ = std::make_unique<model::Decoder<float>>(settings_.model, leaf);

  plan::Policy policy;
  policy.sharding = plan::Sharding::none;
  program_ = runtime::make_program(
      plan::build_step_plan(decoder_->description(), 1, policy, plan::Purpose::decode));
  const std::int64_t available = runtime::available_memory_bytes(plan::Space::device);
  require(program_.memory.arena_bytes <= available, "this model needs ",
          format_bytes(program_.memory.arena_bytes), " of memory to look back on ",
          settings_.training.sequence_length, " tokens, ", format_bytes(available),
          " are available");

  logits_.resize(static_cast<std::size_t>(settings_.model.vocabulary));
  arena_ = std::make_unique<runtime::Arena>(program_.memory.arena_bytes);
  host_arena_ =
      std::make_unique<runtime::Arena>(program_.host_memory.arena_bytes, plan::Space::host);
  for (const plan::Action& action : program_.plan.actions)
    if (action.kind == Kind::copy_to_host) left_ = action.buffer(Role::target);
  executor_ = std::make_unique<runtime::Executor>(arenas());
  install();
  load(weights);
}

void Generator::install() {
  executor_->on(Kind::load, [this](const ActionBuffers& buffers) {
    // The rest of the batch behind the tokens is copied but not read, so it needs a value.
    const auto batch = buffers.host_view<std::int32_t>(Role::host_batch);
    std::fill(std::copy(pending_.begin(), pending_.end(), batch.data()),
              batch.data() + batch.size(), 0);
  });
  executor_->on(Kind::copy_to_device, [](const ActionBuffers& buffers) {
    math::copy_to_device(buffers.exec, buffers.host_view<char>(Role::source),
                         buffers.device_view<char>(Role::target));
  });
  executor_->on(Kind::copy_to_host, [](const ActionBuffers& buffers) {
    math::copy_to_host(buffers.exec, buffers.device_view<char>(Role::source),
                       buffers.host_view<char>(Role::target));
  });
  executor_->on(Kind::forward, [this](const ActionBuffers& buffers) { run_unit(buffers); });
}

void Generator::load(checkpoint::ParameterSource& weights) {
  const Exec exec;
  std::vector<float> host;
  for (int u = 0; u < decoder_->units(); ++u) {
    const int buffer = program_.plan.units[u].masters;
    const auto flat = runtime::view_of<float, OnDevice>(program_, arenas(), buffer);
    for (const model::Parameter& parameter : decoder_->unit(u).parameters()) {
      host.resize(static_cast<std::size_t>(parameter.elements()));
      weights.read(parameter.owner, parameter.name, parameter.shape, 0, parameter.elements(),
                   host.data());
      math::copy_to_device(exec, host_view(host),
                           flat.range(parameter.offset, parameter.offset + parameter.elements()));
    }
  }
}

void Generator::run_unit(const ActionBuffers& buffers) {
  const int u = buffers.action.unit;
  const int tied_to = decoder_->unit(u).description().tied_to;
  model::UnitBuffers<float> unit = unit_buffers<float>(buffers, program_.plan, tied_to);
  unit.tokens = view_as<std::int32_t>(unit.batch);
  const auto begin = static_cast<std::int64_t>(context_.size());
  const auto count = static_cast<std::int64_t>(pending_.size());
  decoder_->unit(u).forward(buffers.exec, unit, {begin, begin + count});
}

/// Copies the logits of a run from host memory.
void Generator::read_logits() {
  const auto left = runtime::view_of<float, OnHost>(program_, arenas(), left_);
  std::copy_n(left.data(), logits_.size(), logits_.begin());
}

void Generator::roll_back(const std::vector<std::int32_t>& tokens) {
  const auto fresh = std::mismatch(context_.begin(), context_.end(), tokens.begin(), tokens.end());
  context_.erase(fresh.first, context_.end());
  // The last token's row gives the logits, so it is always computed.
  if (context_.size() == tokens.size()) context_.pop_back();
  const auto known = static_cast<std::int64_t>(context_.size());
  // Layers with a window may have put later tokens, now rolled back, in place of those that the
  // next one sees.
  const std::int64_t window = settings_.model.attention_window;
  const std::int64_t lost = computed_ - decoder_->leaf().cached_rows(window);
  // States of delta nets are those behind all tokens.
  const bool has_lost_states = settings_.model.has_delta_nets() && known < computed_;
  if (has_lost_states || (lost > 0 && known - (window - 1) < lost)) {
    context_.clear();
    computed_ = 0;
  }
}

const std::vector<float>& Generator::logits(const std::vector<std::int32_t>& tokens) {
  require(!tokens.empty() &&
              static_cast<std::int64_t>(tokens.size()) <= settings_.training.sequence_length,
          "a context of ", tokens.size(), " tokens; expected 1 to ",
          settings_.training.sequence_length);
  for (std::int32_t token : tokens)
    require(token >= 0 && token < settings_.model.vocabulary, "token ", token,
            " is not in the vocabulary of ", settings_.model.vocabulary);
  roll_back(tokens);
  const math::SubnormalsScope scope(settings_.runtime.subnormals);
  while (context_.size() < tokens.size()) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(context_.size());
    const auto count = std::min<std::ptrdiff_t>(tokens.end() - begin, tokens_at_once);
    pending_.assign(begin, begin + count);
    // Said before the run, so that what it has written when it throws counts as rolled back.
    computed_ = std::max(computed_, static_cast<std::int64_t>(context_.size() + pending_.size()));
    executor_->run(program_);
    context_.insert(context_.end(), pending_.begin(), pending_.end());
  }
  read_logits();
  return logits_;
}

void Generator::continue_text(const std::vector<std::int32_t>& prompt, std::int64_t count,
                              const SamplingSettings& sampling,
                              const std::function<bool(std::int32_t)>& emit) {
  const auto longest = static_cast<std::size_t>(settings_.training.sequence_length);
  std::vector<std::int32_t> tokens = prompt;
  const std::uint64_t key =
      math::random_key(sampling.seed, "sampling " + std::to_string(sampling.sample));
  for (std::int64_t i = 0; i < count; ++i) {
    if (tokens.size() > longest)
      tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>((longest + 1) / 2));
    const math::RandomBits bits = math::philox(key, static_cast<std::uint64_t>(i), 0);
    const std::int32_t token = draw(logits(tokens), sampling, bits.word[0] * 0x1p-32);
    if (!emit(token)) return;
    tokens.push_back(token);
  }
}

}  // namespace ostrakon::train
