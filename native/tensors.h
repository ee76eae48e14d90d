// Tensors as torch describes them to C: where their memory is, its type and order, in some 50 ns instead of the
// microseconds that asking in Python takes. DLPack fixed this interface and torch 2.10 brought it; the build needs no
// torch, and where it is missing native.py asks in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "kernels.h"

namespace lioncub {

namespace nb = nanobind;

// dlpack.h, version 1: the parts that are read here, laid out as there.
namespace dlpack {

struct Tensor {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct Exchange {
    uint32_t major, minor;
    Exchange *older;
    void *allocate, *to_managed, *from_managed;
    int (*describe)(void *object, Tensor *out);
    void *stream;
};

constexpr int32_t CPU = 1;
constexpr uint8_t FLOAT = 2, BFLOAT = 4;

}  // namespace dlpack

struct View {
    void *data;
    int64_t numel;
    Type type;
};

struct Bytes {
    const uint8_t *data;
    int64_t numel, item_size;
};

// Reads plain, contiguous CPU tensors. Of all others it says nothing: native.py knows what to do.
class Reader {
  public:
    // The interface in its capsule, the two types whose memory is what it seems, and Tensor.is_neg.
    void learn(nb::handle capsule, nb::handle tensor, nb::handle parameter, nb::handle is_neg) {
        auto found = static_cast<dlpack::Exchange *>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
        if (!found) throw nb::python_error();
        if (found->major != 1 || !found->describe) return;
        describe_ = found->describe;
        tensor_ = tensor.ptr(), parameter_ = parameter.ptr();
        is_neg_ = is_neg.inc_ref().ptr();  // for good: the module lives as long as the interpreter
    }

    // One of the three formats.
    std::optional<View> read(PyObject *object) const {
        const std::optional<dlpack::Tensor> found = plain(object);
        const std::optional<Type> format = found ? format_of(*found) : std::nullopt;
        if (!format) return {};
        return View{address(*found), numel_of(*found), *format};
    }

    // Any numbers.
    std::optional<Bytes> read_bytes(PyObject *object) const {
        const std::optional<dlpack::Tensor> found = plain(object);
        if (!found || found->bits % 8) return {};
        return Bytes{static_cast<uint8_t *>(address(*found)), numel_of(*found), found->bits / 8 * found->lanes};
    }

  private:
    std::optional<dlpack::Tensor> plain(PyObject *object) const {
        PyObject *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
        dlpack::Tensor found;
        if (!describe_ || (type != tensor_ && type != parameter_) || is_negated(object)) return {};
        if (describe_(object, &found)) {
            PyErr_Clear();
            return {};
        }
        const int64_t numel = numel_of(found);
        const bool there = found.device_type == dlpack::CPU && (found.data || !numel);
        return there && contiguous(found, numel) ? std::optional(found) : std::nullopt;
    }

    static void *address(const dlpack::Tensor &t) { return static_cast<char *>(t.data) + t.byte_offset; }

    // A view that torch negates when it is read.
    bool is_negated(PyObject *object) const {
        PyObject *answer = PyObject_CallOneArg(is_neg_, object);
        if (!answer) PyErr_Clear();
        Py_XDECREF(answer);
        return answer != Py_False;
    }

    static std::optional<Type> format_of(const dlpack::Tensor &t) {
        if (t.lanes != 1) return {};
        if (t.code == dlpack::FLOAT && t.bits == 32) return Type::f32;
        if (t.code == dlpack::BFLOAT && t.bits == 16) return Type::bf16;
        if (t.code == dlpack::FLOAT && t.bits == 16) return Type::f16;
        return {};
    }

    static int64_t numel_of(const dlpack::Tensor &t) {
        int64_t numel = 1;
        for (int k = 0; k < t.ndim; ++k) numel *= t.shape[k];
        return numel;
    }

    static bool contiguous(const dlpack::Tensor &t, int64_t numel) {
        if (!numel || !t.strides) return true;
        int64_t stride = 1;
        for (int k = t.ndim - 1; k >= 0; --k) {
            if (t.shape[k] != 1 && t.strides[k] != stride) return false;
            stride *= t.shape[k];
        }
        return true;
    }

    int (*describe_)(void *, dlpack::Tensor *) = nullptr;
    PyObject *tensor_ = nullptr, *parameter_ = nullptr, *is_neg_ = nullptr;
};

}  // namespace lioncub
