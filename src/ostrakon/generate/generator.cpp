// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/generate/generator.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/products/product_workspace.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/model/decoder_model.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/handlers/unit_buffers.hpp>
#include <set>

namespace ostrakon::train {

using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

namespace {

model::LeafShape leaf_of(const config::Settings& settings, const GeneratorSettings& own,
                         std::int64_t tokens_at_once) {
  model::LeafShape leaf{own.sequences, settings.training.sequence_length};
  leaf.decoded_rows = std::min(leaf.tokens, tokens_at_once);
  return leaf;
}

}  // namespace

std::unique_ptr<model::Model> Generator::make_model(const config::Settings& settings,
                                                    const GeneratorSettings& own) {
  return model::make_decoder(own.dtype, settings.model, leaf_of(settings, own, tokens_at_once));
}

plan::StepPlan Generator::make_plan(const model::Model& model) {
  plan::Policy policy;
  policy.sharding = plan::Sharding::none;
  policy.product_workspace_bytes = math::product_workspace_bytes(math::kernel_form);
  plan::ModelDescription description = model.description();
  // Nothing is updated, so that parameters exist in the type alone in which they are computed.
  description.master_bytes = description.element_bytes;
  return plan::build_step_plan(description, 1, policy, plan::Purpose::decode);
}

std::int64_t Generator::memory_bytes(const config::Settings& settings,
                                     const GeneratorSettings& own) {
  return runtime::make_program(make_plan(*make_model(settings, own))).memory.arena_bytes;
}

Generator::Generator(const config::Settings& settings, checkpoint::ParameterSource& weights,
                     const GeneratorSettings& own)
    : settings_(settings),
      model_(make_model(settings, own)),
      leaf_(leaf_of(settings, own, tokens_at_once)),
      program_(runtime::make_program(make_plan(*model_))),
      sequences_(static_cast<std::size_t>(own.sequences)) {
  const std::int64_t available = runtime::available_memory_bytes(plan::Space::device);
  require(program_.memory.arena_bytes <= available, "this model needs ",
          format_bytes(program_.memory.arena_bytes), " of memory to look back on ",
          settings_.training.sequence_length, " tokens",
          own.sequences > 1 ? text(" of each of ", own.sequences, " texts") : "", ", ",
          format_bytes(available), " are available");

  arena_ = std::make_unique<runtime::Arena>(program_.memory.arena_bytes);
  host_arena_ =
      std::make_unique<runtime::Arena>(program_.host_memory.arena_bytes, plan::Space::host);
  saved_.assign(static_cast<std::size_t>(model_->units()), -1);
  for (const plan::Action& action : program_.plan.actions) {
    if (action.kind == Kind::copy_to_host) left_ = action.buffer(Role::target);
    if (action.kind == Kind::forward)
      saved_[static_cast<std::size_t>(action.unit)] = action.buffer(Role::saved);
  }
  for (const plan::UnitDescription& unit : model_->description().units)
    tied_to_.push_back(unit.tied_to);
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
  const plan::StepPlan& plan = program_.plan;
  std::vector<float> host;
  dispatch_dtype(model_->dtype(), [&](auto number) {
    using T = decltype(number);
    std::vector<T> numbers;
    for (int u = 0; u < model_->units(); ++u) {
      const int buffer = plan.units[u].masters;
      const auto flat = runtime::view_of<T, OnDevice>(program_, arenas(), buffer);
      for (const model::Parameter& parameter : model_->parameters(u)) {
        const plan::FlatRange one = parameter.frozen ? plan.frozen(u) : plan.trained(u);
        const std::int64_t first =
            plan.offset_in(plan.buffers[buffer], one.first, {}, 0) + parameter.offset;
        host.resize(static_cast<std::size_t>(parameter.elements()));
        weights.read(parameter.owner, parameter.name, parameter.shape, 0, parameter.elements(),
                     host.data());
        numbers.resize(host.size());
        std::transform(host.begin(), host.end(), numbers.begin(),
                       [](float value) { return static_cast<T>(value); });
        math::copy_to_device(exec, host_view(numbers),
                             flat.range(first, first + parameter.elements()));
      }
    }
  });
}

void Generator::run_unit(const ActionBuffers& buffers) {
  const int u = buffers.action.unit;
  model::UnitBuffers<void> unit =
      unit_buffers<void>(buffers, program_.plan, tied_to_[static_cast<std::size_t>(u)]);
  unit.decoded = &runs_;
  const math::ProductWorkspace room(buffers.device_view<std::byte>(plan::Role::product_workspace));
  model_->forward(u, buffers.exec, unit);
}

void Generator::check(const std::vector<Text>& texts) const {
  std::set<std::int64_t> sequences;
  for (const Text& text : texts) {
    require(text.sequence >= 0 && text.sequence < this->sequences() &&
                sequences.insert(text.sequence).second,
            "a text of sequence ", text.sequence, "; expected one of each of ", this->sequences(),
            " at most");
    require(!text.tokens->empty() && static_cast<std::int64_t>(text.tokens->size()) <= leaf_.tokens,
            "a context of ", text.tokens->size(), " tokens; expected 1 to ", leaf_.tokens);
    for (std::int32_t token : *text.tokens)
      require(token >= 0 && token < settings_.model.vocabulary, "token ", token,
              " is not in the vocabulary of ", settings_.model.vocabulary);
  }
}

void Generator::roll_back(const Text& text) {
  auto& [context, computed] = sequence_of(text);
  const Tokens& tokens = *text.tokens;
  const auto fresh = std::mismatch(context.begin(), context.end(), tokens.begin(), tokens.end());
  context.erase(fresh.first, context.end());
  // The last token's row gives the logits, so it is always computed.
  if (context.size() == tokens.size()) context.pop_back();
  const auto known = static_cast<std::int64_t>(context.size());
  // Layers with a window may have put later tokens, now rolled back, in place of those that the
  // next one sees.
  const std::int64_t window = settings_.model.attention_window;
  const std::int64_t lost = computed - leaf_.cached_rows(window);
  // States of delta nets are those behind all tokens.
  const bool has_lost_states = settings_.model.has_delta_nets() && known < computed;
  if (has_lost_states || (lost > 0 && known - (window - 1) < lost)) {
    context.clear();
    computed = 0;
  }
}

std::vector<std::size_t> Generator::find_sources(const std::vector<Text>& texts) {
  std::vector<std::size_t> sources;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::size_t source = i;
    if (sequence_of(texts[i]).context.size() + 1 < texts[i].tokens->size())
      for (std::size_t other = 0; other < i && source == i; ++other)
        if (sources[other] == other && *texts[other].tokens == *texts[i].tokens) source = other;
    sources.push_back(source);
  }
  return sources;
}

void Generator::run(const std::vector<Text>& texts, std::vector<std::size_t>& left) {
  std::vector<std::size_t> computed;
  pending_.clear();
  runs_.clear();
  for (std::size_t i : left) {
    Sequence& sequence = sequence_of(texts[i]);
    const Tokens& tokens = *texts[i].tokens;
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(sequence.context.size());
    // A run is never cut to what others leave of a call: its bits may depend on how long it is.
    const auto count = std::min<std::ptrdiff_t>(tokens.end() - begin, leaf_.decoded_rows);
    if (static_cast<std::int64_t>(pending_.size()) + count > leaf_.rows()) continue;
    pending_.insert(pending_.end(), begin, begin + count);
    const auto position = static_cast<std::int64_t>(sequence.context.size());
    runs_.push_back({texts[i].sequence, position, count});
    // Said before the run, so that what it has written when it throws counts as rolled back.
    sequence.computed = std::max(sequence.computed, position + count);
    computed.push_back(i);
  }
  executor_->run(program_);
  const auto all = runtime::view_of<float, OnHost>(program_, arenas(), left_);
  const auto vocabulary = static_cast<std::ptrdiff_t>(settings_.model.vocabulary);
  auto token = pending_.begin();
  for (std::size_t r = 0; r < computed.size(); ++r) {
    const std::size_t i = computed[r];
    Tokens& context = sequence_of(texts[i]).context;
    context.insert(context.end(), token, token + static_cast<std::ptrdiff_t>(runs_[r].count));
    token += static_cast<std::ptrdiff_t>(runs_[r].count);
    if (context.size() < texts[i].tokens->size()) continue;
    const float* const own = all.data() + static_cast<std::ptrdiff_t>(r) * vocabulary;
    logits_[i].assign(own, own + vocabulary);
    left.erase(std::find(left.begin(), left.end(), i));
  }
}

void Generator::copy_sequence(const Text& from, const Text& to) {
  const Exec exec;
  for (int u = 0; u < model_->units(); ++u) {
    const int buffer = saved_[static_cast<std::size_t>(u)];
    if (buffer < 0) continue;
    model::UnitBuffers<void> unit;
    unit.saved = runtime::view_of<std::byte, OnDevice>(program_, arenas(), buffer);
    if (unit.saved) model_->copy_sequence(u, exec, unit, from.sequence, to.sequence);
  }
  exec.fence();
  sequence_of(to) = sequence_of(from);
}

const std::vector<std::vector<float>>& Generator::logits(const std::vector<Text>& texts) {
  check(texts);
  for (const Text& text : texts) roll_back(text);
  const std::vector<std::size_t> sources = find_sources(texts);
  logits_.resize(texts.size());
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (sources[i] == i) left.push_back(i);
  {
    const math::SubnormalsScope scope(settings_.runtime.subnormals);
    while (!left.empty()) run(texts, left);
  }
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (sources[i] != i) {
      copy_sequence(texts[sources[i]], texts[i]);
      logits_[i] = logits_[sources[i]];
    }
  return logits_;
}

const std::vector<float>& Generator::logits(const Tokens& tokens) {
  return logits({Text{0, &tokens}}).front();
}

}  // namespace ostrakon::train
