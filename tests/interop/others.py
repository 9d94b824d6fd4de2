"""others.py FOLDER: reads what FOLDER/ours.txt lists with NumPy and zarr-python, then writes FOLDER/theirs.txt and what it lists.

Lists and values: see interop_files.cc.
"""
import os
import sys

import h5py
import numcodecs
import numpy
import zarr
from zarr import codecs

FOLDER = sys.argv[1]


def values(shape, dtype, rows=None):
    dtype = numpy.dtype(dtype)
    v = (numpy.arange(numpy.prod(shape, dtype="int64"), dtype="int64") * 37 + 11) % 101
    if dtype == bool:
        v = v % 2
    elif dtype.kind == "c":
        v = (v - 50) / 4 + 1j * (v / 2)
    elif dtype.kind == "f":
        v = (v - 50) / 4
    elif dtype.kind == "i":
        v = v - 50
    out = v.astype(dtype).reshape(shape)
    if rows is not None:
        out[rows:] = 9
    return out


def read_ours():
    wrong = []
    lines = open(os.path.join(FOLDER, "ours.txt")).read().splitlines()
    for line in lines:
        form, name, _, dtype, shape, _ = line.split()
        shape = () if shape == "-" else tuple(map(int, shape.split(",")))
        path = os.path.join(FOLDER, name)
        try:
            found = numpy.load(path) if form == "npy" else zarr.open_array(path, mode="r")
            got = numpy.asarray(found[...])
            if form == "zarr" and zarr.open_array(path, mode="r").shape != shape:
                wrong.append(f"{name}: shape {found.shape} for {shape}")
            if got.dtype != numpy.dtype(dtype):
                wrong.append(f"{name}: dtype {got.dtype} for {dtype}")
            elif got.shape != shape or not numpy.array_equal(got, values(shape, dtype)):
                wrong.append(f"{name}: other values")
        except Exception as e:  # whatever a library makes of a file that it does not like
            wrong.append(f"{name}: {type(e).__name__}: {e}")
    print(f"{len(lines)} arrays of ours read by NumPy {numpy.__version__} and zarr-python {zarr.__version__}, {len(wrong)} of them wrong")
    return wrong


LISTED = []


def tell(form, name, dtype, shape, dataset="-", rows=None):
    extents = ",".join(map(str, shape)) or "-"
    LISTED.append(f"{form} {name} {dataset} {numpy.dtype(dtype).newbyteorder('=')} {extents} {'-' if rows is None else rows}")


def put_zarr(name, dtype, shape=(9, 10), rows=None, **options):
    name += ".theirs.zarr"
    options.setdefault("chunks", tuple(min(4, max(extent, 1)) for extent in shape))
    array = zarr.create_array(os.path.join(FOLDER, name), shape=shape, dtype=dtype, fill_value=9 if rows is not None else 0, **options)
    if rows is None:
        array[...] = values(shape, dtype)
    else:
        array[:rows] = values(shape, dtype)[:rows]
    tell("zarr", name, dtype, shape, rows=rows)


DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


def write_zarr():
    for dtype in DTYPES:
        put_zarr(f"{dtype}.v3", dtype)
        put_zarr(f"{dtype}.v2", dtype, zarr_format=2)
    # Version 3: every codec that is said to be read, alone, together, and inside shards.
    none = []
    ways = {
        "gzip": codecs.GzipCodec(level=5),
        "zstd": codecs.ZstdCodec(level=5),
        "zstd-checksum": codecs.ZstdCodec(level=1, checksum=True),
        "crc32c": codecs.Crc32cCodec(),
    }
    for name in ("lz4", "lz4hc", "zlib", "zstd", "blosclz"):
        for shuffle in ("noshuffle", "shuffle", "bitshuffle"):
            ways[f"blosc-{name}-{shuffle}"] = codecs.BloscCodec(cname=name, clevel=5, shuffle=shuffle, typesize=8)
    for name, codec in ways.items():
        put_zarr(f"{name}", "float64", compressors=[codec])
        put_zarr(f"{name}.sharded", "float64", compressors=[codec], shards=(8, 8))
    put_zarr("none", "float64", compressors=none)
    put_zarr("two", "float64", compressors=[codecs.ZstdCodec(), codecs.Crc32cCodec()])
    put_zarr("big-endian", "float64", serializer=codecs.BytesCodec(endian="big"))
    put_zarr("transposed", "int16", filters=[codecs.TransposeCodec(order=(1, 0))])
    put_zarr("index-first", "int32", chunks=(8, 8), compressors=none, serializer=codecs.ShardingCodec(
        chunk_shape=(4, 4), index_location="start", codecs=[codecs.BytesCodec(), codecs.ZstdCodec()]))
    put_zarr("dots", "int32", chunk_key_encoding={"name": "default", "separator": "."})
    put_zarr("v2-keys", "int32", chunk_key_encoding={"name": "v2", "separator": "/"})
    put_zarr("holes", "float32", rows=5)
    put_zarr("holes.sharded", "float32", rows=5, shards=(8, 8))
    put_zarr("holes.v2", "float32", rows=5, zarr_format=2)
    for shape in ((), (0, 3), (1,), (2, 3, 1, 5)):
        put_zarr(f"rank{len(shape)}", "int64", shape=shape)
    # Version 2.
    for name, codec in {"zlib": numcodecs.Zlib(5), "gzip": numcodecs.GZip(5), "zstd": numcodecs.Zstd(5), "blosc": numcodecs.Blosc("lz4", 5),
                        "blosc-zstd": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE)}.items():
        put_zarr(f"v2-{name}", "int32", zarr_format=2, compressors=codec)
    put_zarr("v2-none", "int32", zarr_format=2, compressors=None)
    put_zarr("v2-fortran", "int32", zarr_format=2, order="F")
    put_zarr("v2-big-endian", ">i4", zarr_format=2)
    put_zarr("v2-slashes", "int32", zarr_format=2, chunk_key_encoding={"name": "v2", "separator": "/"})


def write_npy():
    for dtype in DTYPES:
        numpy.save(os.path.join(FOLDER, f"{dtype}.theirs.npy"), values((9, 10), dtype))
        tell("npy", f"{dtype}.theirs.npy", dtype, (9, 10))
    numpy.save(os.path.join(FOLDER, "fortran.theirs.npy"), numpy.asfortranarray(values((9, 10), "float64")))
    tell("npy", "fortran.theirs.npy", "float64", (9, 10))
    for shape in ((), (0, 3), (2, 3, 1, 5)):
        numpy.save(os.path.join(FOLDER, f"rank{len(shape)}.theirs.npy"), values(shape, "int64"))
        tell("npy", f"rank{len(shape)}.theirs.npy", "int64", shape)


def write_hdf5():
    with h5py.File(os.path.join(FOLDER, "theirs.h5"), "w") as f:
        def put(name, dtype, shape=(9, 10), **options):
            f.create_dataset(name, data=values(shape, dtype), **options)
            tell("hdf5", "theirs.h5", dtype, shape, dataset=f"/{name}")
        for dtype in DTYPES:
            if dtype not in ("float16", "complex64", "complex128"):
                put(dtype, dtype)
        put("group/chunked", "float64", chunks=(4, 3))
        put("group/gzip", "float64", chunks=(4, 3), compression="gzip")
        put("group/shuffled", "int32", chunks=(4, 3), compression="gzip", shuffle=True, fletcher32=True)
        put("big", ">f8")
        put("point", "int64", shape=())


wrong = read_ours()
write_zarr()
write_npy()
write_hdf5()
with open(os.path.join(FOLDER, "theirs.txt"), "w") as out:
    out.write("\n".join(LISTED) + "\n")
for line in wrong:
    print(line)
sys.exit(1 if wrong else 0)
