"""Files: the seam to a disk, the disk itself, syncs and descriptors."""
