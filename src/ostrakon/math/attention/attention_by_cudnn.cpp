// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's graphs. They are made by its frontend, which knows which engines and knobs
// are deterministic, and what versions can't compute; the backend's own interface says neither.

#include <ostrakon/math/attention/attention_blocks.hpp>
#include <ostrakon/math/attention/attention_library.hpp>

// The frontend needs a JSON library only to save graphs.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <exception>
#include <map>
#include <ostrakon/base/text.hpp>
#include <unordered_map>
#include <utility>

namespace ostrakon::math {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Numbers of tensors in a graph, by which calls give their addresses.
enum Id : std::int64_t { q = 1, k, v, o, stats, d_o, d_q, d_k, d_v };

/// A graph with a built plan, or why there is none.
struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;
  std::int64_t index = 0, workspace_bytes = 0;
  std::string name;  ///< engine and knobs
  std::string refusal;
};

/// Sizes and strides of a call.
struct Call {
  AttentionShape shape;
  DType dtype;
  AttentionPass pass;
  AttentionArrays arrays;  ///< of which a plan depends on the strides alone

  std::vector<std::int64_t> key() const {
    const AttentionArrays& a = arrays;
    return {shape.batch,
            shape.tokens,
            shape.heads,
            shape.kv_heads,
            shape.head_width,
            shape.width_of_values(),
            shape.scores.window,
            static_cast<std::int64_t>(score_scale<double>(shape) * 1e12),
            static_cast<std::int64_t>(dtype),
            static_cast<std::int64_t>(pass),
            a.queries.stride,
            a.keys.stride,
            a.values.stride,
            a.out.stride,
            a.dout.stride,
            a.dqueries.stride,
            a.dkeys.stride,
            a.dvalues.stride};
  }
  bool is_one() const { return shape.batch == 1 && shape.kv_heads == 1; }
  /// The call for one sequence and head of keys, with as many query heads as share it here.
  Call one() const {
    Call call = *this;
    call.shape.batch = 1;
    call.shape.heads = shape.heads / shape.kv_heads;
    call.shape.kv_heads = 1;
    return call;
  }
};

/// Describes one array of a graph: (batch, heads, tokens, width), with heads side by side in rows.
void describe(const Tensor& tensor, Id id, const AttentionShape& shape, std::int64_t heads,
              std::int64_t width, std::int64_t stride) {
  tensor->set_uid(id)
      .set_dim({shape.batch, heads, shape.tokens, width})
      .set_stride({shape.tokens * stride, width, stride, 1});
}

void describe_stats(const Tensor& tensor, const AttentionShape& shape) {
  tensor->set_uid(stats)
      .set_dim({shape.batch, shape.heads, shape.tokens, 1})
      .set_stride({shape.heads * shape.tokens, shape.tokens, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

/// Sets scale and mask, which forward and backward have by the same names. A query sees its own key
/// and those before it, with a window that many.
template <class Attributes>
void set_scores(Attributes& attributes, const AttentionShape& shape) {
  attributes.set_attn_scale(score_scale<float>(shape));
  attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
  attributes.set_diagonal_band_right_bound(0);
  if (shape.scores.window > 0 && shape.scores.window < shape.tokens)
    attributes.set_diagonal_band_left_bound(shape.scores.window);
}

std::shared_ptr<fe::graph::Graph> make_graph(const Call& call) {
  const AttentionShape& shape = call.shape;
  const AttentionArrays& arrays = call.arrays;
  const std::int64_t width = shape.head_width, value_width = shape.width_of_values();
  auto graph = std::make_shared<fe::graph::Graph>();
  graph
      ->set_io_data_type(call.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16
                                                   : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto input = [&](Id id, std::int64_t heads, std::int64_t columns, std::int64_t stride) {
    Tensor tensor = graph->tensor(fe::graph::Tensor_attributes());
    describe(tensor, id, shape, heads, columns, stride);
    return tensor;
  };
  const auto output = [&](const Tensor& tensor, Id id, std::int64_t heads, std::int64_t columns,
                          std::int64_t stride) {
    tensor->set_output(true);
    describe(tensor, id, shape, heads, columns, stride);
  };
  const Tensor queries = input(q, shape.heads, width, arrays.queries.stride);
  const Tensor keys = input(k, shape.kv_heads, width, arrays.keys.stride);
  const Tensor values = input(v, shape.kv_heads, value_width, arrays.values.stride);
  if (call.pass == AttentionPass::forward) {
    auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    set_scores(attributes, shape);
    const auto [out, sums] = graph->sdpa(queries, keys, values, attributes);
    output(out, o, shape.heads, value_width, arrays.out.stride);
    sums->set_output(true);
    describe_stats(sums, shape);
    return graph;
  }
  const Tensor out = input(o, shape.heads, value_width, arrays.out.stride);
  const Tensor dout = input(d_o, shape.heads, value_width, arrays.dout.stride);
  const Tensor sums = graph->tensor(fe::graph::Tensor_attributes());
  describe_stats(sums, shape);
  auto attributes = fe::graph::SDPA_backward_attributes()
                        .set_name("attention_backward")
                        .set_deterministic_algorithm(true);
  set_scores(attributes, shape);
  const auto [dq, dk, dv] =
      graph->sdpa_backward(queries, keys, values, out, dout, sums, attributes);
  output(dq, d_q, shape.heads, width, arrays.dqueries.stride);
  output(dk, d_k, shape.kv_heads, width, arrays.dkeys.stride);
  output(dv, d_v, shape.kv_heads, value_width, arrays.dvalues.stride);
  return graph;
}

/// Returns why a call of the frontend failed; empty if it did not.
std::string refusal_of(fe::error_t error) {
  if (error.is_good()) return {};
  return error.get_message().empty() ? "refuses without a reason" : error.get_message();
}

/// Builds the plan named `wanted`; with an empty name the first of the library's heuristics that
/// can be built.
void build(Plan& plan, const std::string& wanted) {
  fe::graph::Graph& graph = *plan.graph;
  const std::int64_t count = graph.get_execution_plan_count();
  plan.refusal = wanted.empty() ? "offers no plan" : "offers no plan " + wanted;
  for (plan.index = 0; plan.index < count; ++plan.index) {
    std::string refusal = refusal_of(graph.get_plan_name_at_index(plan.index, plan.name));
    if (refusal.empty() && !wanted.empty() && plan.name != wanted) continue;
    if (refusal.empty()) refusal = refusal_of(graph.build_plan_at_index(plan.index));
    if (refusal.empty())
      refusal =
          refusal_of(graph.get_workspace_size_plan_at_index(plan.index, plan.workspace_bytes));
    plan.refusal = refusal;
    if (refusal.empty()) return;
  }
}

Plan make_plan(cudnnHandle_t handle, const Call& call, const std::string& wanted) {
  Plan plan;
  try {
    plan.graph = make_graph(call);
    plan.refusal = refusal_of(plan.graph->validate());
    if (plan.refusal.empty()) plan.refusal = refusal_of(plan.graph->build_operation_graph(handle));
    if (plan.refusal.empty())
      plan.refusal = refusal_of(plan.graph->create_execution_plans({fe::HeurMode_t::A}));
    if (plan.refusal.empty()) build(plan, wanted);
  } catch (const std::exception& error) {
    plan.refusal = error.what();
  }
  return plan;
}

/// One stream computes attention, so there is one handle.
class Cudnn : public AttentionLibrary {
 public:
  Cudnn() = default;
  ~Cudnn() override {
    plans_.clear();
    if (handle_ != nullptr) cudnnDestroy(handle_);
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  std::string name() const override {
    const std::size_t version = cudnnGetVersion();
    return text("cuDNN ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  }
  std::string forward(const Exec& exec, const AttentionShape& shape, DType dtype,
                      const AttentionArrays& arrays, LibraryWorkspace workspace) override {
    return submit(exec, {shape, dtype, AttentionPass::forward, arrays}, workspace);
  }
  std::string backward(const Exec& exec, const AttentionShape& shape, DType dtype,
                       const AttentionArrays& arrays, LibraryWorkspace workspace) override {
    return submit(exec, {shape, dtype, AttentionPass::backward, arrays}, workspace);
  }

 private:
  std::string submit(const Exec& exec, const Call& call, LibraryWorkspace workspace) {
    if (handle_ == nullptr) {
      const cudnnStatus_t status = cudnnCreate(&handle_);
      if (status != CUDNN_STATUS_SUCCESS)
        return text("cudnnCreate failed: ", cudnnGetErrorString(status));
    }
    const Plan& plan = plan_for(call);
    if (!plan.refusal.empty()) return plan.refusal;
    if (plan.workspace_bytes > workspace.bytes)
      return text("needs ", plan.workspace_bytes, " bytes of workspace; expected at most ",
                  workspace.bytes);
    const AttentionArrays& a = call.arrays;
    std::unordered_map<std::int64_t, void*> addresses = {{q, a.queries.written()},
                                                         {k, a.keys.written()},
                                                         {v, a.values.written()},
                                                         {o, a.out.written()},
                                                         {stats, a.log_sum_exp}};
    if (call.pass == AttentionPass::backward)
      addresses.insert({{d_o, a.dout.written()},
                        {d_q, a.dqueries.written()},
                        {d_k, a.dkeys.written()},
                        {d_v, a.dvalues.written()}});
    const cudnnStatus_t status = cudnnSetStream(handle_, exec.cuda_stream());
    if (status != CUDNN_STATUS_SUCCESS)
      return text("cudnnSetStream failed: ", cudnnGetErrorString(status));
    return refusal_of(
        plan.graph->execute_plan_at_index(handle_, addresses, workspace.data, plan.index));
  }

  /// Returns the plan of a call. Heuristics may choose another engine for other numbers of
  /// sequences and heads, which could have other bits, so the plan is that of one of both.
  const Plan& plan_for(const Call& call) {
    const std::vector<std::int64_t> key = call.key();
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    std::string wanted;
    if (!call.is_one()) {
      const Plan& one = plan_for(call.one());
      if (!one.refusal.empty()) return one;
      wanted = one.name;
    }
    return plans_.emplace(key, make_plan(handle_, call, wanted)).first->second;
  }

  cudnnHandle_t handle_ = nullptr;
  std::map<std::vector<std::int64_t>, Plan> plans_;
};

}  // namespace

std::unique_ptr<AttentionLibrary> make_attention_library() {
  Kokkos::push_finalize_hook([] { use_attention_library(nullptr); });  // before CUDA ends
  return std::make_unique<Cudnn>();
}

}  // namespace ostrakon::math
