"""Files on local disks and object stores: reading, atomic writing, manifests and the lock of an output folder."""
