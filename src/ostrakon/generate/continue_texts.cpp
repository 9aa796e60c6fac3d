// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/generate/continue_texts.hpp>

#include <ostrakon/math/random.hpp>
#include <string>

namespace ostrakon::train {
namespace {

/// A text that is being continued.
class Going {
 public:
  Going(std::size_t which, const TokenPrompt& text)
      : which_(which),
        sampling_(text.sampling),
        key_(math::random_key(sampling_.seed, "sampling " + std::to_string(sampling_.sample))),
        seen_(text.tokens),
        context_(text.tokens) {}

  std::size_t which() const { return which_; }
  std::int64_t drawn() const { return drawn_; }
  /// The tokens of which the model is given logits, `longest` at most.
  const Generator::Tokens& context(std::size_t longest) {
    if (context_.size() > longest)
      context_.erase(context_.begin(),
                     context_.end() - static_cast<std::ptrdiff_t>((longest + 1) / 2));
    return context_;
  }
  std::int32_t draw_from(const std::vector<float>& logits) {
    const math::RandomBits bits = math::philox(key_, static_cast<std::uint64_t>(drawn_++), 0);
    const std::int32_t token = draw(sampling_.repetition_penalty == 1.0
                                        ? logits
                                        : penalized(logits, sampling_.repetition_penalty, seen_),
                                    sampling_, bits.word[0] * 0x1p-32);
    seen_.push_back(token);
    context_.push_back(token);
    return token;
  }

 private:
  std::size_t which_;
  SamplingSettings sampling_;
  std::uint64_t key_;
  std::int64_t drawn_ = 0;
  Generator::Tokens seen_;     ///< the whole text
  Generator::Tokens context_;  ///< its end
};

}  // namespace

void continue_texts(Generator& generator, const std::vector<TokenPrompt>& texts, std::int64_t count,
                    const std::function<bool(std::size_t, std::int32_t)>& emit) {
  if (count <= 0) return;
  const auto longest = static_cast<std::size_t>(generator.settings().training.sequence_length);
  std::vector<std::unique_ptr<Going>> going(static_cast<std::size_t>(generator.sequences()));
  std::size_t next = 0;
  for (;;) {
    std::vector<Generator::Text> computed;
    std::vector<std::unique_ptr<Going>*> those;
    for (std::size_t s = 0; s < going.size(); ++s) {
      if (!going[s] && next < texts.size()) {
        going[s] = std::make_unique<Going>(next, texts[next]);
        ++next;
        // Runs of its tokens begin with its first one, whatever the sequence had before.
        if (generator.settings().model.has_delta_nets())
          generator.forget(static_cast<std::int64_t>(s));
      }
      if (!going[s]) continue;
      computed.push_back({static_cast<std::int64_t>(s), &going[s]->context(longest)});
      those.push_back(&going[s]);
    }
    if (computed.empty()) return;
    const std::vector<std::vector<float>>& logits = generator.logits(computed);
    for (std::size_t i = 0; i < those.size(); ++i) {
      Going& text = **those[i];
      const bool goes_on = emit(text.which(), text.draw_from(logits[i]));
      if (!goes_on || text.drawn() == count) those[i]->reset();
    }
  }
}

}  // namespace ostrakon::train
