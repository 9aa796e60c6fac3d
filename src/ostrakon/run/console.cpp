// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/console.hpp>

#include <cmath>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/config/wall_time.hpp>

namespace ostrakon::train {

namespace {

std::string words_of(const std::optional<PairRewards>& rewards) {
  return rewards ? print("  reward margin %.3f  accuracy %.1f %%", rewards->margin(),
                         100.0 * rewards->accuracy)
                 : "";
}

}  // namespace

Console::Console(std::ostream& out, const Options& options) : out_(out), options_(options) {}

/// Prints text. A stream that has failed takes nothing more until its state is cleared.
void Console::put(const std::string& words) {
  constexpr std::size_t most = std::size_t{1} << 20;
  waiting_ += words;
  out_ << waiting_ << std::flush;
  if (out_.good()) {
    waiting_.clear();
    return;
  }
  out_.clear();
  if (waiting_.size() > most) waiting_.erase(0, waiting_.size() - most);
}

void Console::say(const std::string& words) {
  if (!options_.is_root) return;
  end_line();
  put(printable_lines(words));
}

void Console::end_line() {
  if (is_open_) put("\n");
  is_open_ = false;
}

/// Returns "  00:12:30 to go"; empty where nothing is known yet, and after the last step.
std::string Console::time_to_go(std::int64_t step) {
  const double now = options_.clock();
  if (first_step_ == 0) {
    first_step_ = step;
    first_end_ = now;
  }
  if (step <= first_step_ || step >= options_.steps) return "";
  const double a_step = (now - first_end_) / static_cast<double>(step - first_step_);
  const double left = a_step * static_cast<double>(options_.steps - step);
  return "  " + config::format_wall_time(left < 1.0 ? 1.0 : left) + " to go";
}

void Console::show(const StepMetrics& metrics) {
  if (!options_.is_root) return;
  const std::string to_go = time_to_go(metrics.step);
  const bool line_is_due =
      metrics.step == 1 || metrics.step == options_.steps || metrics.step % options_.every == 0;
  if (!options_.terminal && !line_is_due) return;
  const std::string line = print(
      "  step %*lld/%lld  loss %.4f  grad norm %.3f  lr %.2e  %s tokens/s  MFU %s%.0f %%",
      static_cast<int>(std::to_string(options_.steps).size()), static_cast<long long>(metrics.step),
      static_cast<long long>(options_.steps), metrics.result.loss, metrics.result.grad_norm,
      metrics.result.learning_rate, format_count(std::llround(metrics.tokens_per_second)).c_str(),
      metrics.mfu_uncertain ? "<= " : "", 100.0 * metrics.mfu);
  is_open_ = options_.terminal && !line_is_due;
  put(text(options_.terminal ? "\r\033[K" : "", line, words_of(metrics.rewards), to_go,
           is_open_ ? "" : "\n"));
}

void Console::show(const ValidationMetrics& metrics) {
  if (!options_.is_root) return;
  end_line();
  put(text("  step ", metrics.step, "  validation loss ", metrics.validation_loss,
           metrics.bits_per_byte ? text("  ", *metrics.bits_per_byte, " bits per byte") : "",
           metrics.ema_validation_loss ? text("  of averages ", *metrics.ema_validation_loss) : "",
           words_of(metrics.rewards), "\n"));
}

void Console::show(const EvaluationMetrics& metrics) {
  if (!options_.is_root) return;
  end_line();
  for (const auto& [file, findings] : metrics.found) {
    std::string line = text("  step ", metrics.step, "  ", file, ":");
    for (const auto& [what, value] : findings) line += text("  ", what, " ", value);
    put(line + "\n");
  }
}

std::string note_lines(const std::vector<std::string>& notes) {
  std::string lines;
  for (const std::string& note : notes) lines += "  note                   " + note + "\n";
  return lines;
}

}  // namespace ostrakon::train
