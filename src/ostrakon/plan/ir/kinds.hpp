// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ostrakon/base/names.hpp>
#include <string_view>

namespace ostrakon::plan {

/// What a plan is for. All plans of a run share one arena and its persistent buffers.
enum class Purpose {
  train,              ///< one optimizer step
  evaluate,           ///< losses of one global batch, nothing else
  export_parameters,  ///< every unit's parameters, whole, one unit after the other
  decode,             ///< forward of one sequence, keeping what later rows need (one rank)
  audit               ///< one optimizer step in which, before the update, each rank computes a leaf
                      ///< of another rank again: see AuditPass
};
constexpr Named<Purpose> purpose_names[] = {{Purpose::train, "train"},
                                            {Purpose::evaluate, "evaluate"},
                                            {Purpose::export_parameters, "export_parameters"},
                                            {Purpose::decode, "decode"},
                                            {Purpose::audit, "audit"}};
constexpr const char* name(Purpose purpose) { return name_in(purpose_names, purpose); }
/// Whether a plan makes an optimizer step.
constexpr bool trains(Purpose purpose) {
  return purpose == Purpose::train || purpose == Purpose::audit;
}

/// The memory that bytes are in. Each has an arena of its own; on a build without devices both are
/// host memory.
enum class Space : std::uint8_t { device, host };
constexpr Named<Space> space_names[] = {{Space::device, "device"}, {Space::host, "host"}};
constexpr int spaces = static_cast<int>(std::size(space_names));
constexpr const char* name(Space space) { return name_in(space_names, space); }

/// The queue that an action belongs to. Actions of one stream run one after the other, in plan
/// order; those of different streams run at the same time unless one waits for the other.
enum class Stream : std::uint8_t {
  compute,
  gather,
  reduce,
  upload,    ///< copies from host to device
  download,  ///< copies from device to host
  host,      ///< work of the host on its own memory: reads batches, adds up the step's sums over
             ///< ranks, and updates. Handlers of all other streams may leave work to a device
  send,      ///< messages to neighbouring stages
  receive,   ///< messages from neighbouring stages
  exchange   ///< exchanges of activations within a unit
};
constexpr Named<Stream> stream_names[] = {
    {Stream::compute, "compute"}, {Stream::gather, "gather"},     {Stream::reduce, "reduce"},
    {Stream::upload, "upload"},   {Stream::download, "download"}, {Stream::host, "host"},
    {Stream::send, "send"},       {Stream::receive, "receive"},   {Stream::exchange, "exchange"}};
constexpr const char* name(Stream stream) { return name_in(stream_names, stream); }
constexpr int streams = static_cast<int>(std::size(stream_names));

/// What an action does; its `unit` and `micro_batch` say to what.
enum class Kind : std::uint8_t {
  begin,   ///< clear the step's sums
  load,    ///< tokens and targets of a micro-batch, to host memory
  gather,  ///< all-gather a unit's parameters from their shards
  forward,
  recompute,  ///< forward again, for the activations that backward reads
  backward,
  keep,              ///< copy the part of gathered parameters that stays after forward
  release,           ///< end buffers, after other streams have finished using them
  loss,              ///< add a micro-batch's losses to the step's sums
  reduce_scatter,    ///< sum a unit's gradients over ranks, keep this rank's part or add it to its
                     ///< sum over the micro-batches before
  accumulate,        ///< add one partial sum over micro-batches to another
  norm,              ///< add the squares of a unit's gradient to the step's sums
  reduce_sums,       ///< add up the step's sums over ranks where `clip` does not: see Updates
  clip,              ///< add up the step's sums over ranks; the loss, the norm, the clip
                     ///< coefficient
  gather_gradients,  ///< all-gather summed gradients where a rank updates more than its own part;
                     ///< or update directions, of which orthogonalize needs whole matrices
  direction,         ///< replace the gradients of whole matrices by their momentum
  orthogonalize,     ///< orthogonalize the whole matrices of which this rank updates a part
  optimize,          ///< update a unit's parameters
  verify,            ///< verify an update made before `clip`: if `clip` decides otherwise, restore
                     ///< the replaced values, and update again as `clip` says, if at all
  gather_updates,    ///< all-gather updated parameters, in place, where a rank updates fewer than
                     ///< it stores
  copy_to_device,    ///< copy between host and device memory: see Action::flats
  copy_to_host,
  export_parameters,  ///< hand a unit's parameters to the caller
  send,               ///< send a unit's output, or a gradient, to a neighbouring stage
  receive,            ///< receive an output, or a gradient, from a neighbouring stage
  exchange,  ///< exchange activations between two phases of a unit's forward, recompute or backward
  dequantize,  ///< convert parameters that were gathered in 8 bits to the compute dtype
  digest,      ///< compute a digest of parameters or gradients of a unit, for `audit`
  audit        ///< compare the digests of all ranks
};

/// What an action spends its time on, for proofs, estimates and reports.
enum class Activity : std::uint8_t {
  none,        ///< nothing: its place in the plan and its waits do the work
  phase,       ///< a phase of a unit
  update,      ///< parameters, or the directions in which they are updated
  collective,  ///< a collective over a span, of parameters, gradients or activations
  global_sum,  ///< a sum over all ranks of all stages
  message,     ///< a message between stages
  copy,        ///< a copy between host and device memory
  other        ///< little: small kernels, or work of the host
};

/// How an action outside phases of units processes arrays: each way has its own rate on a described
/// machine.
enum class Processing : std::uint8_t {
  none,
  converts,  ///< to the dtype in which elements are sent, if that is another one
  dequantizes,
  keeps,  ///< copies a part of gathered parameters
  rows,   ///< as the kernels of units
  updates,
  norms,   ///< sums of squares
  digests  ///< hashes of all elements
};

/// All that is known of a kind of action by others than its handler, its proof and the pass that
/// plans it.
struct KindTraits {
  Kind value;
  const char* name;  ///< in plans, traces and messages
  Stream stream;     ///< unless it works on host memory, or continues what another stream has begun
  Activity activity;
  Processing processing = Processing::none;
  bool is_landmark = true;  ///< whether texts name it to say when another action happens
};
constexpr KindTraits kind_table[] = {
    {Kind::begin, "begin", Stream::compute, Activity::other},
    {Kind::load, "load", Stream::host, Activity::other},
    {Kind::gather, "gather", Stream::gather, Activity::collective, Processing::converts, false},
    {Kind::forward, "forward", Stream::compute, Activity::phase},
    {Kind::recompute, "recompute", Stream::compute, Activity::phase},
    {Kind::backward, "backward", Stream::compute, Activity::phase},
    {Kind::keep, "keep", Stream::compute, Activity::other, Processing::keeps, false},
    {Kind::release, "release", Stream::compute, Activity::none, Processing::none, false},
    {Kind::loss, "loss", Stream::compute, Activity::other},
    {Kind::reduce_scatter, "reduce_scatter", Stream::reduce, Activity::collective,
     Processing::converts, false},
    {Kind::accumulate, "accumulate", Stream::compute, Activity::other, Processing::updates, false},
    {Kind::norm, "norm", Stream::compute, Activity::other, Processing::norms, false},
    {Kind::reduce_sums, "reduce_sums", Stream::host, Activity::global_sum},
    {Kind::clip, "clip", Stream::host, Activity::global_sum},
    {Kind::gather_gradients, "gather_gradients", Stream::gather, Activity::collective},
    {Kind::direction, "direction", Stream::compute, Activity::update, Processing::rows},
    {Kind::orthogonalize, "orthogonalize", Stream::compute, Activity::update},
    {Kind::optimize, "optimize", Stream::compute, Activity::update, Processing::updates},
    {Kind::verify, "verify", Stream::compute, Activity::other},
    {Kind::gather_updates, "gather_updates", Stream::gather, Activity::collective},
    {Kind::copy_to_device, "copy_to_device", Stream::upload, Activity::copy, Processing::none,
     false},
    {Kind::copy_to_host, "copy_to_host", Stream::download, Activity::copy, Processing::none, false},
    {Kind::export_parameters, "visit", Stream::compute, Activity::other},
    {Kind::send, "send", Stream::send, Activity::message},
    {Kind::receive, "receive", Stream::receive, Activity::message},
    {Kind::exchange, "exchange", Stream::exchange, Activity::collective},
    {Kind::dequantize, "dequantize", Stream::gather, Activity::other, Processing::dequantizes,
     false},
    {Kind::digest, "digest", Stream::compute, Activity::other, Processing::digests, false},
    {Kind::audit, "audit", Stream::host, Activity::global_sum}};
constexpr int kinds = static_cast<int>(std::size(kind_table));

constexpr bool is_in_order() {
  for (int k = 0; k < kinds; ++k)
    if (kind_table[k].value != static_cast<Kind>(k)) return false;
  return true;
}
static_assert(is_in_order(), "kind_table has a row for each kind, in the order of Kind");
constexpr const KindTraits& traits(Kind kind) { return kind_table[static_cast<int>(kind)]; }
constexpr const char* name(Kind kind) { return traits(kind).name; }
constexpr std::optional<Kind> find_kind(std::string_view name) {
  for (const KindTraits& one : kind_table)
    if (one.name == name) return one.value;
  return std::nullopt;
}

constexpr bool communicates(Kind kind) { return traits(kind).activity == Activity::collective; }
constexpr bool is_message(Kind kind) { return traits(kind).activity == Activity::message; }
constexpr bool is_copy(Kind kind) { return traits(kind).activity == Activity::copy; }
constexpr bool is_phase(Kind kind) { return traits(kind).activity == Activity::phase; }
constexpr bool is_update(Kind kind) { return traits(kind).activity == Activity::update; }
constexpr bool is_global_sum(Kind kind) { return traits(kind).activity == Activity::global_sum; }

/// What an action uses a buffer for.
enum class Role : std::uint8_t {
  batch,
  parameters,  ///< parameters that a unit computes with: gathered, or the shard itself where it is
               ///< whole
  tied_parameters,
  shard,  ///< this rank's master parameters, or the part that it kept after forward
  first_moment,
  second_moment,
  input,
  output,
  saved,
  deferred,  ///< written by backward for the deferred phases
  workspace,
  gradient,  ///< gradient of activations, passed backward
  parameter_gradients,
  tied_gradients,
  gradient_shard,  ///< this rank's part of the gradients summed over ranks
  packed,          ///< gradients in the dtype in which they are sent
  source,          ///< source of an accumulation, a copy or a conversion
  target,          ///< target of a copy
  staging,
  sums,                ///< this rank's sums of the step: on the device, or as copied from there
  released,            ///< a buffer that a release ends
  host_batch,          ///< batch in host memory, as read from files
  host_sums,           ///< the step's sums on the host, which are added up over ranks
  send_buffer,         ///< send buffer of an exchange, written by the phase before it
  recv_buffer,         ///< result of the first exchange that a phase reads: Phase::reads
  second_recv_buffer,  ///< result of the second exchange that a phase reads
  replaced,            ///< values that an update replaces, until it is verified:
                       ///< StepPlan::replaced_bytes
  digests,             ///< an integer for each of StepPlan::digests
  average,             ///< this rank's part of the parameters' averages over steps
  product_workspace    ///< of the device's library of products: StepPlan::product_workspace
};
constexpr Named<Role> role_names[] = {{Role::batch, "batch"},
                                      {Role::parameters, "parameters"},
                                      {Role::tied_parameters, "tied_parameters"},
                                      {Role::shard, "shard"},
                                      {Role::first_moment, "first_moment"},
                                      {Role::second_moment, "second_moment"},
                                      {Role::input, "input"},
                                      {Role::output, "output"},
                                      {Role::saved, "saved"},
                                      {Role::deferred, "deferred"},
                                      {Role::workspace, "workspace"},
                                      {Role::gradient, "gradient"},
                                      {Role::parameter_gradients, "parameter_gradients"},
                                      {Role::tied_gradients, "tied_gradients"},
                                      {Role::gradient_shard, "gradient_shard"},
                                      {Role::packed, "packed"},
                                      {Role::source, "source"},
                                      {Role::target, "target"},
                                      {Role::staging, "staging"},
                                      {Role::sums, "sums"},
                                      {Role::released, "released"},
                                      {Role::host_batch, "host_batch"},
                                      {Role::host_sums, "host_sums"},
                                      {Role::send_buffer, "send_buffer"},
                                      {Role::recv_buffer, "recv_buffer"},
                                      {Role::second_recv_buffer, "second_recv_buffer"},
                                      {Role::replaced, "replaced"},
                                      {Role::digests, "digests"},
                                      {Role::average, "average"},
                                      {Role::product_workspace, "product_workspace"}};
constexpr const char* name(Role role) { return name_in(role_names, role); }

enum class Access : std::uint8_t { read, write, read_write };
constexpr Named<Access> access_names[] = {
    {Access::read, "read"}, {Access::write, "write"}, {Access::read_write, "read_write"}};
constexpr const char* name(Access access) { return name_in(access_names, access); }

/// What a backward adds its gradients of parameters to.
enum class AddsTo : std::uint8_t {
  nothing,         ///< it writes them
  tied_gradients,  ///< gradients of the same leaf, which a unit that is tied to it has written
  partial_sum,     ///< a sum over other micro-batches, to which this one's gradients come next
};

/// What memory is used for, as shown in reports.
enum class Category : std::uint8_t {
  parameters,
  optimizer,
  gathered,
  gradients,
  activations,
  workspace,
  staging,
  other
};
constexpr Named<Category> category_names[] = {
    {Category::parameters, "parameters"},         {Category::optimizer, "optimizer state"},
    {Category::gathered, "gathered parameters"},  {Category::gradients, "gradients"},
    {Category::activations, "activations"},       {Category::workspace, "workspace"},
    {Category::staging, "communication staging"}, {Category::other, "other"}};
constexpr const char* name(Category category) { return name_in(category_names, category); }
constexpr int categories = static_cast<int>(std::size(category_names));

}  // namespace ostrakon::plan
