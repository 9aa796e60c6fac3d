// SPDX-License-Identifier: Apache-2.0
// What the trainer saves, and how it goes on from what was saved.
#include <algorithm>
#include <cstring>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/threads.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/mesh/named_agree.hpp>
#include <ostrakon/train/numbers.hpp>
#include <ostrakon/train/trainer.hpp>
#include <sstream>
#include <stdexcept>

namespace ostrakon::train {

using checkpoint::Slice;
using checkpoint::State;

namespace {

constexpr State all_states[] = {State::parameters, State::first_moment, State::second_moment};

optim::OutlierFilter::State filter_state(const checkpoint::Progress::Outliers& saved) {
  optim::OutlierFilter::State state;
  state.steps = saved.steps;
  state.loss = {saved.loss_mean, saved.loss_variance};
  state.gradient_norm = {saved.gradient_norm_mean, saved.gradient_norm_variance};
  return state;
}

}  // namespace

/// Collective. Groups need not be of neighbours: every rank tells where it stands.
std::vector<Trainer::RankPlace> Trainer::find_places() {
  std::vector<RankPlace> places;
  const std::string mine = text(rank_, " ", mesh_.node_index());
  for (const std::string& one : mesh_.world().gather_texts(mine)) {
    std::istringstream stream(one);
    RankPlace place{};
    stream >> place.rank >> place.node;
    places.push_back(place);
  }
  return places;
}

/// What a rank saves: of every unit the part that no other rank has, or that others leave to it.
std::vector<Slice> Trainer::slices_of(int rank) const {
  const plan::StepPlan& plan = train_.plan;
  std::vector<Slice> slices;
  int first_row = 0;
  for (int u = 0; u < decoder_->units(); ++u) {
    for (const State state : all_states) {
      const int buffer = state_buffer(u, state);
      if (buffer < 0) continue;
      const plan::FlatRange flats = plan.buffers[buffer].flats;
      for (int flat = flats.first; flat < flats.end; ++flat) {
        for (const Piece& piece : pieces_of(rank, flat, plan.layouts.gradient.divided)) {
          if (state == State::second_moment &&
              optim::rule_of(settings_.optimizer, *piece.parameter) == optim::OptimizerKind::muon)
            continue;
          // A unit's parameters are neighbours in the table.
          const auto row = static_cast<int>(piece.parameter - decoder_->parameters(u).data());
          slices.push_back({state, first_row + row, piece.first, piece.count});
        }
      }
    }
    first_row += static_cast<int>(decoder_->parameters(u).size());
  }
  return slices;
}

void Trainer::note_slices() {
  for (int u = 0; u < decoder_->units(); ++u)
    for (const model::Parameter& parameter : decoder_->parameters(u)) table_.push_back(&parameter);
  std::int64_t staged = 0;
  for (int u = 0; u < decoder_->units(); ++u)
    for (const State state : all_states) {
      const std::int64_t size = bytes_of(number_of(state));
      for (const StatePiece& piece :
           state_pieces(u, member_of(state), train_.plan.layouts.gradient.divided)) {
        saved_.push_back({state_buffer(u, state), piece.offset * size, piece.count * size, staged});
        staged += piece.count * size;
      }
    }
  if (has_staging() && staged > train_.plan.buffers[train_.plan.checkpoint].bytes)
    throw std::logic_error("a checkpoint's copy is larger than planned");
}

checkpoint::ShardMap Trainer::shard_map() {
  checkpoint::ShardMap map;
  for (int u = 0; u < decoder_->units(); ++u)
    for (const model::Parameter& parameter : decoder_->parameters(u))
      map.parameters.push_back({parameter.owner, parameter.name, parameter.shape,
                                train_.plan.units[u].name, parameter.frozen});
  for (const State state : all_states) map.numbers[static_cast<int>(state)] = number_of(state);
  for (const RankPlace& place : places_) {
    map.slices.push_back(slices_of(place.rank));
    map.nodes.push_back(place.node);
  }
  return map;
}

checkpoint::Progress Trainer::progress() const {
  checkpoint::Progress progress;
  progress.step = step_;
  progress.updates = updates_;
  progress.samples =
      samples_before_ + (step_ + 1 - first_step_) * settings_.training.global_batch_size;
  progress.seed = settings_.training.seed;
  progress.loss_scale = loss_scale_.state().scale;
  progress.good_steps = loss_scale_.state().good_steps;
  if (outliers_) {
    const optim::OutlierFilter::State& state = outliers_->state();
    progress.outliers = {state.steps, state.loss.mean, state.loss.variance,
                         state.gradient_norm.mean, state.gradient_norm.variance};
  }
  return progress;
}

void Trainer::stage() {
  exec_.fence();
  char* const copy = state<char>(train_.plan.checkpoint);
  // In parts of so many bytes, so that all cores that this rank has to itself can help.
  constexpr std::int64_t most = std::int64_t{4} << 20;
  struct Copy {
    const char* from;
    char* to;
    std::size_t bytes;
  };
  std::vector<Copy> copies;
  for (const SavedSlice& slice : saved_) {
    const char* const values = state<char>(slice.buffer) + slice.begin;
    if (!is_host_readable(slice.buffer)) {
      math::copy_to_host(exec_, values, copy + slice.staged, static_cast<std::size_t>(slice.bytes));
      continue;
    }
    for (std::int64_t first = 0; first < slice.bytes; first += most)
      copies.push_back({values + first, copy + slice.staged + first,
                        static_cast<std::size_t>(std::min(most, slice.bytes - first))});
  }
  constexpr int most_threads = 4;  // that memory keeps busy
  in_threads(std::clamp(mesh_.cores(), 1, most_threads), static_cast<std::int64_t>(copies.size()),
             [&](int, std::int64_t i) {
               const Copy& one = copies[static_cast<std::size_t>(i)];
               std::memcpy(one.to, one.from, one.bytes);
             });
}

const void* Trainer::saved(std::size_t slice, std::int64_t first, std::int64_t bytes, bool staged) {
  const SavedSlice& one = saved_[slice];
  if (staged) return state<char>(train_.plan.checkpoint) + one.staged + first;
  const char* const values = state<char>(one.buffer) + one.begin + first;
  if (is_host_readable(one.buffer)) return values;
  bounce_.resize(std::max(bounce_.size(), static_cast<std::size_t>(bytes)));
  math::copy_to_host(exec_, values, bounce_.data(), static_cast<std::size_t>(bytes));
  return bounce_.data();
}

// ---- going on

void Trainer::require_fit(const checkpoint::Manifest& manifest) const {
  std::map<std::string, std::size_t> saved;
  for (const checkpoint::ParameterEntry& entry : manifest.parameters)
    saved.emplace(entry.path(), saved.size());
  std::vector<std::size_t> rows;  // of the manifest's table, for each of ours
  for (const model::Parameter* parameter : table_) {
    const auto found = saved.find(parameter->owner + "/" + parameter->name);
    require(found != saved.end(), "it has no parameter ", parameter->full_name(),
            ", which the deck's model has");
    rows.push_back(found->second);
    const std::vector<std::int64_t>& shape = manifest.parameters[found->second].shape;
    require(shape == parameter->shape, "its ", parameter->full_name(), " has the shape ",
            hdf5::shape_text(shape), "; the deck's model expects ",
            hdf5::shape_text(parameter->shape));
  }
  require(saved.size() == table_.size(), "it has ", saved.size(),
          " parameters; the deck's model has ", table_.size());
  const std::int64_t length = settings_.training.sequence_length;
  require(manifest.progress.samples <= std::numeric_limits<std::int64_t>::max() / (2 * length),
          "it has seen ", manifest.progress.samples, " samples of ", length,
          " tokens, more than can be counted");
  const Number masters = manifest.numbers[static_cast<std::size_t>(State::parameters)];
  require(masters == Number::fp32, "its parameters are ", name(masters), "; expected fp32");
  std::vector<std::array<bool, checkpoint::states>> has(saved.size());
  for (const checkpoint::FileEntry& file : manifest.files)
    for (const checkpoint::PieceEntry& piece : file.pieces)
      has[static_cast<std::size_t>(piece.slice.parameter)]
         [static_cast<std::size_t>(piece.slice.state)] = true;
  for (const Slice& slice : slices_of(rank_)) {
    if (slice.state == State::parameters) continue;
    const auto state = static_cast<std::size_t>(slice.state);
    const auto row = static_cast<std::size_t>(slice.parameter);
    require(has[rows[row]][state], "it has no ", checkpoint::name(slice.state), " of ",
            table_[row]->full_name(),
            manifest.parameters[rows[row]].frozen ? ", which was frozen" : "",
            " (its optimizer is ", manifest.optimizer,
            "); name it as checkpoint.initial_weights to begin anew with its parameters");
    require(manifest.numbers[state] == number_of(slice.state), "its moments are ",
            name(manifest.numbers[state]),
            "; expected optimizer.moments = ", name(manifest.numbers[state]), ", not ",
            name(number_of(slice.state)));
  }
}

/// Adds what this rank reads of one kind of a unit's state to `wanted`, to go straight into its
/// buffer; reads it where that can't be. Of what several ranks have each reads its share.
void Trainer::restore(int unit, State state, checkpoint::CheckpointReader& checkpoint,
                      std::vector<checkpoint::Wanted>& wanted) {
  const int buffer = state_buffer(unit, state);
  if (buffer < 0) return;
  clear(buffer);
  const std::int64_t size = bytes_of(number_of(state));
  const plan::StepPlan& plan = train_.plan;
  const plan::Spans& share =
      is_packed(unit, state) ? plan.buffers[buffer].divided : plan.layouts.gradient.divided;
  for (const StatePiece& piece : state_pieces(unit, member_of(state), share)) {
    const int index = checkpoint.find(piece.parameter->owner, piece.parameter->name);
    char* const values = this->state<char>(buffer) + piece.offset * size;
    if (is_host_readable(buffer)) {
      wanted.push_back({{state, index, piece.first, piece.count}, values});
      continue;
    }
    const std::int64_t most = checkpoint::block_bytes / size;
    bounce_.resize(std::max(bounce_.size(), static_cast<std::size_t>(checkpoint::block_bytes)));
    for (std::int64_t done = 0; done < piece.count; done += most) {
      const std::int64_t some = std::min(most, piece.count - done);
      checkpoint.read(state, index, piece.first + done, some, bounce_.data());
      math::copy_to_device(exec_, bounce_.data(), values + done * size,
                           static_cast<std::size_t>(some * size));
    }
  }
}

/// Whether a buffer leaves out what is not where the flat parameter has it.
bool Trainer::is_packed(int unit, State state) const {
  return state == State::second_moment && !train_.plan.units[unit].whole_matrices.empty();
}

/// Gives those who have the same of a unit's state what each of them has read. Collective.
void Trainer::share(int unit, State state) {
  const plan::StepPlan& plan = train_.plan;
  const int index = state_buffer(unit, state);
  if (index < 0 || is_packed(unit, state)) return;
  const plan::Buffer& buffer = plan.buffers[index];
  with_number(number_of(state), [&](auto one) {
    using T = decltype(one);
    for (int flat = buffer.flats.first; flat < buffer.flats.end; ++flat) {
      const auto find_part = [&](const plan::Spans& divided) {
        return this->state<T>(index) + plan.offset_in(buffer, flat, divided, rank_);
      };
      for (plan::Spans part = plan.layouts.gradient.divided; part.size() > buffer.divided.size();
           part = part.outer())
        communicator(plan::Stream::gather, part.innermost())
            .all_gather(find_part(part), plan.elements({flat, flat + 1}, part),
                        find_part(part.outer()));
    }
  });
}

/// The same on all ranks, whatever they had before.
void Trainer::restore(const checkpoint::Progress& progress) {
  step_ = progress.step;
  updates_ = progress.updates;
  first_step_ = progress.step + 1;
  samples_before_ = progress.samples;
  // Without fp16 there is nothing to scale, and other settings may not allow this scale.
  if (config::scales_loss(settings_))
    loss_scale_.restore({progress.loss_scale, progress.good_steps});
  if (!outliers_) return;
  outliers_->restore(progress.outliers ? filter_state(*progress.outliers)
                                       : optim::OutlierFilter::State());
}

void Trainer::restore(checkpoint::CheckpointReader& checkpoint) {
  const plan::StepPlan& plan = train_.plan;
  mesh::agree_by_name(mesh_.world(), [&] {
    std::vector<checkpoint::Wanted> wanted;
    for (int u = 0; u < decoder_->units(); ++u)
      for (const State state : all_states) restore(u, state, checkpoint, wanted);
    exec_.fence();
    checkpoint.read(wanted);
  });
  for (int u = 0; u < decoder_->units(); ++u)
    for (const State state : all_states) share(u, state);
  mesh::agree_by_name(mesh_.world(), [&] {
    for (int u = 0; u < decoder_->units() && plan.layouts.has_copies(); ++u)
      restore_working(u, checkpoint);
    exec_.fence();
    restore(checkpoint.manifest().progress);
  });
}

}  // namespace ostrakon::train
